#include "tools/config_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/gpt.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/optimizer_groups.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct ConfigOptions {
  std::vector<std::string> files, overrides, keys;
  std::int64_t ranks = 0;  // 0: not asked
  bool json = false;
};

std::string dp_values_text(const JobConfig& job) {
  if (!job.reproducibility.lanes) return "lanes auto";
  std::string text = fmt::format("lanes {}, dp", *job.reproducibility.lanes);
  const std::vector<std::int64_t> values = dp_values_that_fit(job, *job.reproducibility.lanes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{} {}", i == 0 ? "" : i + 1 == values.size() ? " or" : ",", values[i]);
  }
  return text;
}

// "10 steps of 8 sequences × 16 tokens; lanes 4, dp 1, 2 or 4".
std::string summary(const JobConfig& job) {
  std::string text =
      job.run.steps ? fmt::format("{} steps", *job.run.steps) : fmt::format("{} epochs in steps", *job.run.epochs);
  text += fmt::format(" of {} sequences × {} tokens; {}", job.batch.global_batch_size, job.model.seq_len,
                      dp_values_text(job));
  return text;
}

// "; 2 ranks: 8 = dp 2 × micro 2 × accumulate 2".
std::string batch_text(const JobConfig& job, std::int64_t ranks) {
  const ResolvedBatch batch = resolve(job, ranks);
  return fmt::format("; {} ranks: {} = dp {} × micro {} × accumulate {}", ranks, job.batch.global_batch_size, batch.dp,
                     job.batch.micro_batch_size, batch.micro_batches_per_rank);
}

struct Checked {
  std::vector<ConfigProblem> problems;
  std::string ok;  // what to say where there is no problem
};

Checked check_file(const ConfigOptions& options, const std::string& file) {
  ConfigResult result = check_config(file, options.overrides);
  Checked checked{std::move(result.problems), {}};
  if (!checked.problems.empty()) return checked;
  checked.ok = summary(result.config);
  try {
    const JobConfig& job = result.config;
    match_groups(job.optimizer.groups, describe_gpt(job.model, job.batch.micro_batch_size, 1).parameters);
    if (options.ranks > 0) checked.ok += batch_text(job, options.ranks);
  } catch (const ConfigError& error) {
    checked.problems.push_back({file, 0, "", error.what(), error.hint()});
  }
  return checked;
}

int check_files(const ConfigOptions& options) {
  OrderedJson all = OrderedJson::array();
  bool ok = true;
  for (const std::string& file : options.files) {
    const Checked checked = check_file(options, file);
    ok = ok && checked.problems.empty();
    for (const ConfigProblem& problem : checked.problems) {
      if (options.json) {
        all.push_back({{"file", problem.file},
                       {"line", problem.line},
                       {"key", problem.key},
                       {"message", problem.message},
                       {"hint", problem.hint}});
      } else {
        std::cout << problem.line_text() << "\n";
      }
    }
    if (!options.json && checked.problems.empty()) std::cout << fmt::format("ok: {}: {}\n", file, checked.ok);
  }
  if (options.json) {
    OrderedJson report = OrderedJson::object();
    report["ok"] = ok;
    report["problems"] = std::move(all);
    // File names need not be UTF-8; JSON has to be.
    std::cout << report.dump(2, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
  }
  return static_cast<int>(ok ? ExitCode::kDone : ExitCode::kUsage);
}

// One argument each time, so that a file may follow: --set run.steps=5 job.yaml.
void add_set_option(CLI::App& command, ConfigOptions& options) {
  command.add_option("--set", options.overrides, "over the file, by its rules; may be repeated")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_show(CLI::App& config, const std::shared_ptr<ConfigOptions>& options, int& exit_code) {
  CLI::App* command = config.add_subcommand("show", "the job with every default filled in; loads back to the same job");
  command->footer(
      "tessera config show configs/tiny.yaml\ntessera config show configs/tiny.yaml --set run.steps=100 --json");
  command->add_option("config", options->files, "job file")->required()->expected(1);
  add_set_option(*command, *options);
  command->add_flag("--json", options->json, "JSON instead of YAML");
  command->callback([options, &exit_code] {
    const JobConfig job = load_config(options->files.front(), options->overrides);
    std::cout << (options->json ? to_json(job) + "\n" : to_yaml(job));
    exit_code = static_cast<int>(ExitCode::kDone);
  });
}

void add_check(CLI::App& config, const std::shared_ptr<ConfigOptions>& options, int& exit_code) {
  CLI::App* command =
      config.add_subcommand("check", "every problem of job files, or ok; exit code 2 where there is one");
  command->footer(
      "tessera config check job.yaml\ntessera config check configs/*.yaml\ntessera config check job.yaml --ranks 8 "
      "--set mesh.dp=8");
  command->add_option("config", options->files, "job files")->required();
  add_set_option(*command, *options);
  command->add_option("--ranks", options->ranks, "also check that the job divides over so many ranks")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000}));
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([options, &exit_code] { exit_code = check_files(*options); });
}

void add_explain(CLI::App& config, const std::shared_ptr<ConfigOptions>& options, int& exit_code) {
  CLI::App* command = config.add_subcommand("explain", "a key's meaning, values, default and name in other frameworks");
  command->footer(
      "tessera config explain optimizer.learning_rate\ntessera config explain n_embd\ntessera config explain "
      "fsdp\ntessera config explain");
  command->add_option("key", options->keys, "a dotted key, a section, or another framework's name; none: the sections");
  command->callback([options, &exit_code] {
    if (options->keys.empty()) std::cout << explain_key("");
    for (std::size_t i = 0; i < options->keys.size(); ++i) {
      if (options->keys[i].empty()) throw ConfigError("config explain: an empty key");
      const std::string text = explain_key(options->keys[i]);
      std::cout << (i == 0 ? "" : "\n") << text;
    }
    exit_code = static_cast<int>(ExitCode::kDone);
  });
}

void add_schema(CLI::App& config, int& exit_code) {
  CLI::App* command =
      config.add_subcommand("schema", "JSON Schema of a job file, for editors that complete and check YAML");
  command->footer(
      "tessera config schema > job.schema.json\n# then, in a job file: # yaml-language-server: "
      "$schema=job.schema.json");
  command->callback([&exit_code] {
    std::cout << json_schema() << "\n";
    exit_code = static_cast<int>(ExitCode::kDone);
  });
}

}  // namespace

void add_config_commands(CLI::App& app, int& exit_code) {
  CLI::App* config = app.add_subcommand("config", "what a job file means and what is wrong with it");
  config->footer("tessera config check job.yaml\ntessera config explain optimizer.learning_rate");
  config->require_subcommand(1);
  const auto options = std::make_shared<ConfigOptions>();
  add_show(*config, options, exit_code);
  add_check(*config, options, exit_code);
  add_explain(*config, options, exit_code);
  add_schema(*config, exit_code);
}

}  // namespace tessera
