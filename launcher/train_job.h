// `tessera train` of one process: from the command line to the call of train(), and out again in order.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/teardown.h"

namespace tessera {

struct TrainOptions {
  std::string config;
  std::vector<std::string> overrides;              // key=value, over the file
  std::string run_directory;                       // empty: runs/<run.name>
  std::string progress = "auto";                   // auto | bar | plain
  std::string resume;                              // over checkpoint.resume; empty: what the config says
  std::vector<std::string> allowed_changes;        // keys that a resume may find changed
  std::function<void(TeardownState)> on_teardown;  // told of each state (tests)
};

// Returns the exit code. Collective: every rank of the job calls it.
int run_train_job(const TrainOptions& options);

}  // namespace tessera
