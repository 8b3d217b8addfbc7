// `tessera train`: the command line of launcher/train_job.h.
#pragma once

#include "launcher/train_job.h"

namespace CLI {
class App;
}

namespace tessera {

void add_train_command(CLI::App& app, int& exit_code);

// The options of train, for every command that passes them on (launch): --set, --run-dir, --resume, --allow-change, --progress, and CONFIG.
void add_train_options(CLI::App& command, TrainOptions& options);

}  // namespace tessera
