#include "runtime/train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "checkpoint/folders.h"
#include "checkpoint/load_latest.h"
#include "checkpoint/model_check.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/saved_job.h"

namespace tessera {
namespace {

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

// Of the files, whatever data.train calls them: the same may lie elsewhere, and others under the same names. "" where the run can go on with them;
// then the data to come is handed over.
std::string refuse_data(ResumedRun& run, const ResumeRequest& request) {
  const JobConfig& config = request.facts.config;
  const bool other_order =
      run.changes_any({"data.shuffle", "batch.global_batch_size", "run.seed", "model.seq_len", "model.vocab_size"});
  if (other_order && !is_allowed(request, "data.train")) {  // what was read is not known by batches any more
    const auto changed = std::ranges::find(run.changes, "data.train", &KeyChange::key);
    if (changed != run.changes.end()) return str(*changed);
  }
  DataContinuation data;
  if (other_order) {
    data.refused = missing_files(run.manifest.training.data, request.data);
  } else {
    data = continue_data(run.manifest.training.data, request.data, config);
  }
  if (!data.refused.empty() && !is_allowed(request, "data.train"))
    return fmt::format("data.train: its files are not those of the saved run: {}", fmt::join(data.refused, ", "));
  if (data.parts.empty()) {
    run.other_batches = true;
    data.parts.push_back(make_data_part(request.data, config, 0, 0));
  }
  if (!data.appended.empty()) {
    const SequenceOrder& joining = data.parts.back().order;
    run.other_batches = joining.first_batch() == run.at.batch;
    run.data_notes.push_back(fmt::format(
        "appended to data.train: {}; read from epoch {} on, which begins with {}", fmt::join(data.appended, ", "),
        joining.first_epoch(), run.other_batches ? "the next batch" : fmt::format("batch {}", joining.first_batch())));
  }
  request.take_data(std::move(data.parts));
  return "";
}

// ConfigError that names every key with another value that may not have one.
void refuse_changes(ResumedRun& run, const ResumeRequest& request) {
  std::vector<std::string> refused;
  for (const KeyChange& change : run.changes) {
    if (change.key != "data.train" && !may_change_on_resume(change.key) && !is_allowed(request, change.key))
      refused.push_back(str(change));
  }
  if (std::string problem = refuse_data(run, request); !problem.empty()) refused.push_back(std::move(problem));
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

// What the manifest says of its run, compared with the job.
void compare_with_job(ResumedRun& run, const ResumeRequest& request, const Manifest& manifest,
                      const std::string& folder, const ShardedModel& model) {
  const RunFacts& facts = request.facts;
  run.folder = folder;
  run.manifest = manifest;
  refuse_weights_alone(manifest, folder, parent_directory(parent_directory(folder)));
  run.at = progress_of(manifest.training);
  run.other_batches = false;
  run.data_notes.clear();
  run.changes = changed_keys(saved_job(manifest, folder), resolved_config(facts.config, facts.numerics.lanes));
  std::erase_if(run.changes, [](const KeyChange& change) { return change.key == "checkpoint.resume"; });
  refuse_changes(run, request);
  check_model(manifest, folder, expected_model(run, request), expected_tensors(model.model()), ExtraTensors::kRefuse);
}

std::string no_checkpoint_line(const std::string& checkpoints, const std::vector<SkippedCheckpoint>& skipped) {
  std::vector<std::string> reasons;
  for (const SkippedCheckpoint& each : skipped)
    if (step_of_folder(each.folder)) reasons.push_back(each.reason);
  return fmt::format("{}: no checkpoint loads: {}", checkpoints, fmt::join(reasons, "; "));
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
  const std::string& named = facts.config.checkpoint.resume;
  if (named == "never") return std::nullopt;
  ResumedRun run;
  run.is_own = named == "auto";
  const auto accept = [&](const Manifest& manifest,
                          const std::string& folder) -> std::optional<std::vector<TargetSlice>> {
    request.agreed([&] { compare_with_job(run, request, manifest, folder, model); });
    run.finished = request.is_finished(run.at);
    if (run.finished) return std::nullopt;
    return targets_of(model, optimizer);
  };
  LoadedCheckpoint loaded;
  try {
    loaded =
        run.is_own ? load_latest(files, ranks, request.checkpoints, accept) : load_named(files, ranks, named, accept);
    // What was complete once and is damaged is no reason to train from nothing, unasked.
    if (!loaded.manifest && loaded.skipped_damage())
      throw CheckpointError(no_checkpoint_line(request.checkpoints, loaded.skipped), "another --run-dir starts afresh");
  } catch (const CheckpointError&) {  // the same on all ranks
    request.agreed([] { throw; });
  }
  if (!loaded.manifest) return std::nullopt;
  for (const SkippedCheckpoint& each : loaded.skipped) {
    run.passed_over.push_back(each);
    run.notes.push_back(fmt::format("checkpoint {} is passed over: {}", each.folder, each.reason));
  }
  for (const KeyChange& change : run.changes) run.notes.push_back("changed  " + str(change));
  run.notes.insert(run.notes.end(), run.data_notes.begin(), run.data_notes.end());
  if (run.finished) return run;
  for (int u = 0; u < model.num_units(); ++u) model.unit(u).mark_written(compute);
  if (run.is_own) {
    request.agreed([&] {
      if (ranks.rank() == 0) clear_the_way(files, request.checkpoints, run.at.step);
    });
  }
  return run;
}

void check_certificate(const ResumedRun& run, const RunFacts& facts) {
  if (!run.manifest.training.certificate) return;
  const ResumeCertificate &saved = *run.manifest.training.certificate, now = certificate_of_next_step(facts, run.at);
  std::vector<std::string> different;
  if (saved.batch_digest != now.batch_digest && !run.other_batches && !run.changes_any({"run.overfit_one_batch"})) {
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
  // Of data.train, other_batches knows more than the key.
  const bool job_changed = run.other_batches || std::ranges::any_of(run.changes, [](const KeyChange& change) {
                             return change.key != "data.train" && !may_change_on_resume(change.key);
                           });
  if (job_changed || certificate->loss == loss) return "";
  const std::vector<std::string> numerics =
      differences(run.manifest.training.numerics, numerics_fields(facts.numerics));
  const std::string figures =
      fmt::format("the loss of step {}'s micro-batch 0 is {}, saved was {}", run.at.step + 1, loss, certificate->loss);
  // Not a number is near nothing.
  const bool is_near = std::abs(loss - certificate->loss) <= kLossTolerance * std::abs(certificate->loss);
  if (numerics.empty() || !is_near)
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
