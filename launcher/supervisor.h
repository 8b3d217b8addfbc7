// Runs mpirun for `tessera launch` and stands between it and the signals of the user.
#pragma once

#include "launcher/launch_line.h"

namespace tessera {

// Starts the line and waits for it. SIGINT, SIGTERM, SIGHUP and SIGUSR1 become a request to the ranks to stop (mpirun
// passes SIGUSR1 on, while it answers the others by killing the ranks a second later); a second SIGINT or SIGTERM ends
// mpirun and its ranks. An mpirun that does not end after its ranks of this host, as where another host is cut off, is killed. A SIGHUP that was ignored when this process started (nohup) stays ignored. Returns the job's
// exit code: 130 where it ended after a stop was asked for and no rank said otherwise, 4 where a rank was lost to a
// signal.
int run_job(const LaunchLine& line);

// The exit code for what mpirun returned (its exit status, or 128 + the signal that ended it). Pure.
int job_exit_code(int mpirun_code, bool stop_was_requested);

}  // namespace tessera
