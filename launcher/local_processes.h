// What the kernel says of the processes below mpirun on this host.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

// The exit code of a started process whose program could not be run, as a shell has it.
inline constexpr int kCommandNotRun = 127;

// Direct children of a process; none where the kernel does not list them.
std::vector<pid_t> children_of(pid_t process);

// Those children of mpirun that run one of these programs. It has others: what it starts daemons with. A program is the file that it was at
// construction, whatever its name is now: who builds or installs anew while a job runs takes the name away.
class LocalRanks {
 public:
  // words: of the line that started mpirun; those that are files are programs.
  LocalRanks(pid_t mpirun, const std::vector<std::string>& words);
  std::vector<pid_t> pids() const;

 private:
  pid_t mpirun_;
  std::vector<std::pair<dev_t, ino_t>> programs_;
};

// Whether the process has a handler for the signal: without one it would die of it.
bool handles(pid_t process, int signal);

// From now on processes whose parent is gone become children of this one, so that none of them is lost.
void adopt_orphans();
// Kills the children of this process but for `others`, which it had before (of the shell that became it), and collects them, within the time at most.
// Returns how many there were.
int end_orphans(const std::vector<pid_t>& others, std::chrono::milliseconds patience);

}  // namespace tessera
