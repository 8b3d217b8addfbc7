#include "tools/bench_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/bench_train.h"

namespace tessera {

void add_bench_commands(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure against a baseline of the same run.");
  bench->footer("tessera bench train\ntessera bench gemm --threads 2\nmpirun --quiet -n 2 tessera bench collectives\ntessera bench startup");
  bench->require_subcommand(1);

  auto train = std::make_shared<BenchTrainOptions>();
  CLI::App* train_command = bench->add_subcommand("train", "A training step against the best matrix product; memory against the sum of its parts.");
  train_command->footer("tessera bench train\ntessera bench train configs/tiny.yaml --threads 1 --json");
  train_command->add_option("config", train->config, "job file; default GPT-2 124M, 4 × 256 tokens, fp32");
  train_command->add_option("--threads", train->threads, "compute threads")->check(CLI::PositiveNumber)->capture_default_str();
  train_command->add_option("--steps", train->steps, "timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  train_command->add_option("--warmup", train->warmup, "steps before them")->check(CLI::NonNegativeNumber)->capture_default_str();
  train_command->add_flag("--json", train->json, "a list of figures");
  train_command->callback([train, &exit_code] { exit_code = run_bench_train(*train); });

  auto gemm = std::make_shared<BenchGemmOptions>();
  CLI::App* gemm_command = bench->add_subcommand("gemm", "The products of a GPT-2 124M step against one call of the library.");
  gemm_command->footer("tessera bench gemm --threads 2");
  gemm_command->add_option("--threads", gemm->threads, "compute threads")->check(CLI::PositiveNumber)->capture_default_str();
  gemm_command->add_option("--repeats", gemm->repeats, "timed runs of each, three rounds")->check(CLI::PositiveNumber)->capture_default_str();
  gemm_command->add_flag("--json", gemm->json, "a list of figures");
  gemm_command->callback([gemm, &exit_code] { exit_code = run_bench_gemm(*gemm); });
}

}  // namespace tessera
