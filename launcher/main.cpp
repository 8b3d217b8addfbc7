// The program: one line per command.
#include <CLI/CLI.hpp>

#include "launcher/error_path.h"
#include "launcher/version.h"
#include "tools/bench_command.h"
#include "tools/checkpoint_command.h"
#include "tools/completion_command.h"
#include "tools/config_command.h"
#include "tools/data_command.h"
#include "tools/env_command.h"
#include "tools/generate_command.h"
#include "tools/help_command.h"
#include "tools/inspect_command.h"
#include "tools/launch_command.h"
#include "tools/plan_command.h"
#include "tools/trace_command.h"
#include "tools/train_command.h"

int main(int argc, char** argv) {
  CLI::App app{"Tessera: distributed training of GPT models on MPI."};
  int exit_code = 0;
  tessera::style_help(app);
  app.footer("tessera launch -n 2 configs/quickstart.yaml\nmpirun --quiet -n 2 tessera train configs/quickstart.yaml");
  app.set_version_flag("--version", tessera::version_line(), "this program's version");
  app.require_subcommand(1);
  tessera::add_train_command(app, exit_code);
  tessera::add_launch_command(app, exit_code);
  tessera::add_plan_command(app, exit_code);
  tessera::add_inspect_command(app, exit_code);
  tessera::add_trace_command(app, exit_code);
  tessera::add_checkpoint_commands(app, exit_code);
  tessera::add_config_commands(app, exit_code);
  tessera::add_data_commands(app, exit_code);
  tessera::add_generate_command(app, exit_code);
  tessera::add_bench_commands(app, exit_code);
  tessera::add_env_command(app, exit_code);
  tessera::add_completion_command(app, exit_code);
  return tessera::run_guarded([&] { return tessera::parse_and_run(app, argc, argv, exit_code); });
}
