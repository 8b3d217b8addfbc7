// `tessera launch` while the job runs: starts it, and starts it again after a crash, from the last good step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/launch_line.h"
#include "runtime/config/job_config.h"

namespace tessera {

struct Supervision {
  LaunchRequest request;
  LaunchFacts facts;
  int max_restarts = 0;
  std::vector<int> tee;  // ranks whose log lines are shown
  // Where the config loads; the ranks say what is wrong where it does not.
  std::optional<JobConfig> job;
  std::string run_directory;
  std::string resume;  // checkpoint.resume of the first attempt
};

// Runs the job in at most max_restarts + 1 attempts (restart_rules.h says after which ends) and returns the exit code of the last. Before a
// restart every process of the attempt on this host is gone, the run directory's lock is free, and hosts that were named and do not answer are
// left out, where fewer ranks fit the job.
int supervise(const Supervision& job);

// One attempt at a line, whatever it is.
int run_job(const LaunchLine& line);

}  // namespace tessera
