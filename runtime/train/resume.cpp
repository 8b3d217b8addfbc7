#include "runtime/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/folders.h"
#include "checkpoint/model_check.h"
#include "checkpoint/reader.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/saved_job.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr double kLossTolerance = 1e-3;  // relative, between machines that round differently

void refuse_weights_alone(const Manifest& manifest, const std::string& folder, const std::string& run) {
  if (!manifest.weights_only) return;
  throw CheckpointError(fmt::format("{}: holds weights alone, which no run can go on from", folder),
                        fmt::format("checkpoint.init_from: {}, in a run directory of its own", run));
}

bool is_allowed(const ResumeRequest& request, std::string_view key) {
  return std::ranges::find(request.allowed_changes, key) != request.allowed_changes.end();
}

std::string str(const KeyChange& change) {
  return fmt::format("{}: {} → {}", change.key, change.saved, change.now);
}

// ConfigError that names every key with another value that may not have one.
void refuse_changes(const ResumedRun& run, const ResumeRequest& request) {
  std::vector<std::string> refused;
  for (const KeyChange& change : run.changes) {
    if (!may_change_on_resume(change.key) && !is_allowed(request, change.key)) refused.push_back(str(change));
  }
  // The files may be others under the same names, or the same order read from elsewhere.
  const bool data_changed = run.changes_any({"data.train", "data.shuffle", "batch.global_batch_size", "run.seed"});
  if (!data_changed && run.manifest.training.data.order_digest != request.facts.order_digest &&
      !is_allowed(request, "data.train")) {
    refused.emplace_back("data.train: its files are not those of the saved run");
  }
  if (refused.empty()) return;
  throw ConfigError(fmt::format("resume from {}: {}", run.folder, fmt::join(refused, "; ")),
                    "change it back, another --run-dir, or --allow-change KEY");
}

// Fields of the model that were allowed to change are those that were saved.
Fields expected_model(const ResumedRun& run, const ResumeRequest& request) {
  Fields fields = model_fields(request.facts.config.model);
  for (auto& [name, value] : fields) {
    if (!is_allowed(request, "model." + name)) continue;
    const auto saved = std::ranges::find(run.manifest.model, name, &Fields::value_type::first);
    if (saved != run.manifest.model.end()) value = saved->second;
  }
  return fields;
}

std::vector<ExpectedTensor> expected_tensors(const ModelSpec& model) {
  std::vector<ExpectedTensor> tensors;
  for (const ParameterSpec& parameter : model.parameters) {
    for (const std::string_view suffix : kStateSuffixes) {
      if (suffix.empty() || !parameter.frozen)
        tensors.push_back({fmt::format("{}{}", parameter.name, suffix), extents_of(parameter.shape)});
    }
  }
  return tensors;
}

std::vector<TargetSlice> targets_of(ShardedModel& model, AdamWOptimizer& optimizer) {
  std::vector<TargetSlice> targets;
  for (int u = 0; u < model.num_units(); ++u) {
    for (const std::string_view suffix : kStateSuffixes) {
      const std::span<float> values = optimizer.state(u, suffix);
      if (values.empty()) continue;
      std::ranges::move(target_slices(model.model(), model.unit(u).layout(), model.groups().shard, suffix, values),
                        std::back_inserter(targets));
    }
  }
  return targets;
}

// What rank 0 finds, said to all: other ranks may see the folder a moment later.
LatestCheckpoint find(FileSystem& files, RankExchange& ranks, const ResumeRequest& request, std::int64_t below) {
  LatestCheckpoint found;
  request.agreed([&] {
    if (ranks.rank() != 0) return;
    const std::string& named = request.facts.config.checkpoint.resume;
    if (named == "auto") {
      found = find_latest(files, request.checkpoints, below);
    } else if (named != "never") {
      found.folder = resolve_checkpoint(files, named);
    }
  });
  Json skipped = Json::array();
  for (const SkippedCheckpoint& each : found.skipped) skipped.push_back({each.folder, each.reason});
  const Json json = Json::parse(ranks.exchange(Json{{"folder", found.folder}, {"skipped", skipped}}.dump())[0]);
  LatestCheckpoint shared{.folder = json["folder"]};
  for (const Json& each : json["skipped"]) shared.skipped.push_back({each[0], each[1]});
  return shared;
}

// The run will reach these steps again, and never writes over a folder.
void clear_the_way(FileSystem& files, const std::string& checkpoints, std::int64_t resumed_step) {
  for (const std::int64_t step : list_steps(files, checkpoints)) {
    if (step > resumed_step) set_aside(files, checkpoints, step);
  }
  remove_leftovers(files, checkpoints);
}

}  // namespace

std::optional<StoredChoices> stored_choices(const std::string& run_directory, const std::string& resume) {
  if (resume == "never") return std::nullopt;
  try {
    const auto files = make_posix_file_system();
    const std::string folder = resume == "auto" ? find_latest(*files, run_directory + "/checkpoints").folder
                                                : resolve_checkpoint(*files, resume);
    if (folder.empty()) return std::nullopt;
    const Manifest manifest = read_manifest(*files, folder);
    if (manifest.weights_only) return std::nullopt;
    StoredChoices choices{.lanes = saved_job(manifest, folder).reproducibility.lanes.value_or(1)};
    for (const auto& [name, value] : manifest.training.numerics)
      if (name == "instruction_set") choices.instruction_set = value;
    return choices;
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

void adopt_lanes(JobConfig& config, const std::optional<StoredChoices>& stored) {
  if (stored && !config.reproducibility.lanes) config.reproducibility.lanes = stored->lanes;
}

Isa isa_to_resume_with(const std::string& run_directory, const std::string& resume) {
  const auto stored = stored_choices(run_directory, resume);
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (stored && stored->instruction_set == name_of(isa)) return std::min(isa, current_isa());
  }
  return current_isa();
}

bool ResumedRun::changes_any(std::initializer_list<std::string_view> prefixes) const {
  return std::ranges::any_of(changes, [&](const KeyChange& change) {
    return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return change.key.starts_with(prefix); });
  });
}

std::optional<ResumedRun> resume(FileSystem& files, RankExchange& ranks, const ResumeRequest& request,
                                 ShardedModel& model, AdamWOptimizer& optimizer, StreamView compute) {
  const RunFacts& facts = request.facts;
  const bool is_own = facts.config.checkpoint.resume == "auto";
  std::vector<std::string> passed_over;
  const auto note_passed_over = [&](const SkippedCheckpoint& skipped) {
    const std::string note = fmt::format("checkpoint {} is passed over: {}", skipped.folder, skipped.reason);
    if (std::ranges::find(passed_over, note) == passed_over.end()) passed_over.push_back(note);
  };
  for (std::int64_t below = std::numeric_limits<std::int64_t>::max();;) {
    const LatestCheckpoint found = find(files, ranks, request, below);
    for (const SkippedCheckpoint& each : found.skipped) note_passed_over(each);
    if (found.folder.empty()) {
      // Bytes that are damaged are no reason to train from nothing, unasked.
      if (below != std::numeric_limits<std::int64_t>::max())
        request.agreed([&] {
          throw CheckpointError(fmt::format("{}: no checkpoint loads; {}", request.checkpoints, passed_over.front()),
                                "another --run-dir starts afresh");
        });
      return std::nullopt;
    }
    ResumedRun run{.folder = found.folder, .is_own = is_own};
    std::optional<CheckpointReader> reader;
    request.agreed([&] {
      reader.emplace(CheckpointReader::open(files, run.folder));
      run.manifest = reader->manifest();
      refuse_weights_alone(run.manifest, run.folder, parent_directory(parent_directory(run.folder)));
      run.at = progress_of(run.manifest.training);
      run.changes =
          changed_keys(saved_job(run.manifest, run.folder), resolved_config(facts.config, facts.numerics.lanes));
      std::erase_if(run.changes, [](const KeyChange& change) { return change.key == "checkpoint.resume"; });
      refuse_changes(run, request);
      check_model(run.manifest, run.folder, expected_model(run, request), expected_tensors(model.model()),
                  ExtraTensors::kRefuse);
    });
    run.notes = passed_over;
    for (const KeyChange& change : run.changes) run.notes.push_back("changed  " + str(change));
    run.finished = request.is_finished(run.at);
    if (run.finished) return run;
    try {
      reader->load(ranks, targets_of(model, optimizer));
    } catch (const CheckpointError& error) {  // the same on all ranks
      if (!is_own) request.agreed([&] { throw; });
      note_passed_over({step_folder_name(run.at.step), error.what()});
      below = run.at.step;
      continue;
    }
    for (int u = 0; u < model.num_units(); ++u) model.unit(u).mark_written(compute);
    if (is_own) {
      request.agreed([&] {
        if (ranks.rank() == 0) clear_the_way(files, request.checkpoints, run.at.step);
      });
    }
    return run;
  }
}

void check_certificate(const ResumedRun& run, const RunFacts& facts) {
  if (!run.manifest.training.certificate) return;
  const ResumeCertificate &saved = *run.manifest.training.certificate, now = certificate_of_next_step(facts, run.at);
  std::vector<std::string> different;
  if (saved.batch_digest != now.batch_digest &&
      !run.changes_any({"data.", "batch.global_batch_size", "run.seed", "run.overfit_one_batch", "model.seq_len"})) {
    different.emplace_back("the next batch");
  }
  if (saved.learning_rate != now.learning_rate && !run.changes_any({"optimizer.learning_rate", "schedule."}))
    different.push_back(fmt::format("the learning rate ({} saved, {} now)", saved.learning_rate, now.learning_rate));
  if (saved.rng_digest != now.rng_digest && !run.changes_any({"run.seed"}))
    different.emplace_back("the random numbers");
  if (different.empty()) return;
  throw CheckpointError(
      fmt::format("{}: resume certificate: step {} begins otherwise than it did when it was saved: {}", run.folder,
                  run.at.step + 1, fmt::join(different, ", ")));
}

std::string check_first_loss(const ResumedRun& run, const RunFacts& facts, double loss) {
  const auto& certificate = run.manifest.training.certificate;
  if (!certificate || !std::isfinite(certificate->loss)) return "";
  const bool job_changed =
      std::ranges::any_of(run.changes, [](const KeyChange& change) { return !may_change_on_resume(change.key); });
  if (job_changed || certificate->loss == loss) return "";
  const std::vector<std::string> numerics =
      differences(run.manifest.training.numerics, numerics_fields(facts.numerics));
  const std::string figures =
      fmt::format("the loss of step {}'s micro-batch 0 is {}, saved was {}", run.at.step + 1, loss, certificate->loss);
  if (numerics.empty() || std::abs(loss - certificate->loss) > kLossTolerance * std::abs(certificate->loss))
    throw CheckpointError(fmt::format("{}: resume certificate: {}{}{}", run.folder, figures,
                                      numerics.empty() ? "" : "; ", fmt::join(numerics, "; ")));
  return fmt::format("note: {}: {}", figures, fmt::join(numerics, "; "));
}

std::string resumed_line(const ResumedRun& run, const MeshShape& mesh) {
  const TrainingState& saved = run.manifest.training;
  const std::string dp = saved.mesh.dp == mesh.dp ? "" : fmt::format(" → {}", mesh.dp);
  return fmt::format("resumed step {}, dp {}{}, {}{}", run.at.step, saved.mesh.dp, dp,
                     saved.certificate ? "certificate ok" : "without a certificate",
                     run.is_own ? "" : ", from " + run.folder);
}

std::string finished_line(const ResumedRun& run, std::int64_t num_steps) {
  return fmt::format(
      "finished: {} is saved after step {} of {}, nothing is left to do; hint: a larger run.steps goes on", run.folder,
      run.at.step, num_steps);
}

}  // namespace tessera
