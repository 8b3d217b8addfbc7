// What Linux says of a process, in the form that another process of the same machine can compare later.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

struct ProcessState {
  char state = '?';              // as in /proc/PID/stat: R, S, D, T (stopped), t (traced), Z (dead, not yet collected)
  std::uint64_t start_time = 0;  // clock ticks since boot: with the pid, names one process for the life of a boot
};

// Nothing where no such process exists or its entry cannot be read. proc: where the proc file system is mounted.
std::optional<ProcessState> process_state(std::int64_t pid, const std::string& proc = "/proc");

// False only where the kernel says that nobody has the number. /proc hides the processes of others where it is mounted
// with hidepid, so that an entry which is not there says little.
bool may_exist(std::int64_t pid);

// A hash of the kernel's boot id and of the pid namespace: pids mean the same to two processes where these are equal.
// 0: unknown.
std::uint64_t pid_domain();

}  // namespace tessera
