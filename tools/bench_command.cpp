#include "tools/bench_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "launcher/mpi_session.h"
#include "launcher/rank_guard.h"
#include "tools/bench_checkpoint.h"
#include "tools/bench_collectives.h"
#include "tools/bench_startup.h"
#include "tools/bench_train.h"

namespace tessera {

void add_bench_commands(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure against a baseline of the same run.");
  bench->footer(
      "tessera bench train\ntessera bench gemm --threads 2\nmpirun --quiet -n 2 tessera bench collectives\ntessera "
      "bench startup");
  bench->require_subcommand(1);

  auto train = std::make_shared<BenchTrainOptions>();
  CLI::App* train_command = bench->add_subcommand(
      "train", "Training steps against matrix products of the same seconds; memory against the sum of its parts.");
  train_command->footer("tessera bench train\ntessera bench train configs/tiny.yaml --threads 1 --json");
  train_command->add_option("config", train->config, "job file; default GPT-2 124M, 4 × 256 tokens, fp32");
  train_command->add_option("--threads", train->threads, "compute threads")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  train_command->add_option("--steps", train->steps, "timed steps")->check(CLI::PositiveNumber)->capture_default_str();
  train_command->add_option("--warmup", train->warmup, "steps before them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  train_command->add_flag("--json", train->json, "a list of figures");
  train_command->callback([train, &exit_code] { exit_code = run_bench_train(*train); });

  auto gemm = std::make_shared<BenchGemmOptions>();
  CLI::App* gemm_command =
      bench->add_subcommand("gemm", "The products of a GPT-2 124M step against one call of the library.");
  gemm_command->footer("tessera bench gemm --threads 2");
  gemm_command->add_option("--threads", gemm->threads, "compute threads")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  gemm_command->add_option("--repeats", gemm->repeats, "timed runs of each, three rounds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  gemm_command->add_flag("--json", gemm->json, "a list of figures");
  gemm_command->callback([gemm, &exit_code] { exit_code = run_bench_gemm(*gemm); });

  auto collectives = std::make_shared<BenchCollectivesOptions>();
  auto shard_mib = std::make_shared<int>(4);
  CLI::App* collectives_command =
      bench->add_subcommand("collectives", "Collectives of one host against Open MPI's and against copying.");
  collectives_command->footer(
      "mpirun --quiet -n 2 tessera bench collectives\nmpirun --quiet -n 2 tessera bench collectives --shard-mib 16 "
      "--json");
  collectives_command->add_option("--shard-mib", *shard_mib, "MiB of one rank's shard")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  collectives_command->add_option("--repeats", collectives->repeats, "timed runs of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  collectives_command->add_flag("--large", collectives->large, "also fingerprints' share of a step of GPT-2 124M");
  collectives_command->add_flag("--json", collectives->json, "a list of figures");
  collectives_command->callback([collectives, shard_mib, &exit_code] {
    collectives->shard_bytes = static_cast<std::size_t>(*shard_mib) << 20U;
    MpiSession session;
    exit_code = run_rank(session, [&] {
      session.agree([&] {
        if (session.size() == 1)
          throw ConfigError("bench collectives: one rank has no peers",
                            "mpirun --quiet -n 2 tessera bench collectives");
      });
      return static_cast<ExitCode>(run_bench_collectives(*collectives));
    });
  });

  auto checkpoint = std::make_shared<BenchCheckpointOptions>();
  CLI::App* checkpoint_command =
      bench->add_subcommand("checkpoint", "Saving, stalling and loading against plain writes, copies and reads.");
  checkpoint_command->footer("tessera bench checkpoint\ntessera bench checkpoint --mib 2048 --path /scratch --json");
  checkpoint_command->add_option("--mib", checkpoint->mib, "MiB of state")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  checkpoint_command->add_option("--repeats", checkpoint->repeats, "timed runs of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  checkpoint_command->add_option("--path", checkpoint->path, "a folder of the file system to measure")
      ->capture_default_str();
  checkpoint_command->add_flag("--json", checkpoint->json, "a list of figures");
  checkpoint_command->callback([checkpoint, &exit_code] { exit_code = run_bench_checkpoint(*checkpoint); });

  auto startup = std::make_shared<BenchStartupOptions>();
  CLI::App* startup_command =
      bench->add_subcommand("startup", "From mpirun to the end of step 1 against an MPI program that does nothing.");
  startup_command->footer("tessera bench startup\ntessera bench startup -n 2 --runs 3 --json");
  startup_command->add_option("-n", startup->num_ranks, "ranks")->check(CLI::PositiveNumber)->capture_default_str();
  startup_command->add_option("--runs", startup->runs, "runs of each, taking turns; the fastest counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  startup_command->add_flag("--json", startup->json, "a list of figures");
  startup_command->callback([startup, &exit_code] { exit_code = run_bench_startup(*startup); });
}

}  // namespace tessera
