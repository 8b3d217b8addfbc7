// One start of a job: mpirun, from its first process to its last.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/launch_line.h"
#include "launcher/signal_queue.h"

namespace tessera {

struct AttemptEnd {
  int code = 0;                 // the job's exit code
  bool stop_requested = false;  // by a signal of the user
  bool ran = true;              // false: mpirun is not there
  std::string why;              // "a rank was lost to signal 9 (Killed)", where mpirun ended for reasons of its own
  std::string hint;
  bool said = false;  // on the terminal, when it was seen
};

// Starts the line and waits for it; each_turn is called some times a second. SIGINT, SIGTERM, SIGHUP and SIGUSR1 become a request to the ranks to
// stop (mpirun passes SIGUSR1 on, while it answers the others by killing the ranks a second later), made once all of them can hear it; a second
// SIGINT or SIGTERM ends mpirun and its ranks. An mpirun that does not end after its ranks of this host, as where another host is cut off, is
// killed. No process of the job outlives the attempt on this host. DeviceError where no process can be started.
AttemptEnd run_attempt(const LaunchLine& line, const SignalQueue& signals, const std::function<void()>& each_turn);

// The exit code for what mpirun returned (its exit status, or 128 + the signal that ended it). Pure.
int job_exit_code(int mpirun_code, bool stop_was_requested);

}  // namespace tessera
