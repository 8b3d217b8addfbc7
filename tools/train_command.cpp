#include "tools/train_command.h"

#include <CLI/CLI.hpp>
#include <memory>

namespace tessera {

void add_train_options(CLI::App& command, TrainOptions& options) {
  command.add_option("CONFIG", options.config, "the job, a YAML file")->required();
  command.add_option("--set", options.overrides, "over the file, e.g. optimizer.learning_rate=1e-4; repeatable")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--run-dir", options.run_directory, "where the run writes; default runs/<run.name>")
      ->option_text("DIR");
  command.add_option("--resume", options.resume, "auto, never, or a run or checkpoint to go on from; over the file")
      ->option_text("auto|never|DIR");
  command.add_option("--allow-change", options.allowed_changes, "a key that a resume may find changed; repeatable")
      ->option_text("KEY")
      ->allow_extra_args(false);
  command.add_option("--progress", options.progress, "auto, bar or plain")
      ->option_text("MODE")
      ->check(CLI::IsMember({"auto", "bar", "plain"}));
}

void add_train_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("train", "run a job on the ranks that mpirun started");
  command->footer(
      "mpirun --quiet -n 2 tessera train configs/quickstart.yaml\n"
      "tessera train job.yaml --set run.steps=100 --run-dir runs/a      (one rank)");
  auto options = std::make_shared<TrainOptions>();
  add_train_options(*command, *options);
  command->callback([options, &exit_code] { exit_code = run_train_job(*options); });
}

}  // namespace tessera
