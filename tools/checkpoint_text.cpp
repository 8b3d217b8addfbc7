#include "tools/checkpoint_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/train/reporter.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string dumped(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string size_text(std::uint64_t bytes) {
  return format_bytes(static_cast<std::int64_t>(bytes));
}

std::string date_text(std::int64_t unix_seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

std::int64_t num_elements(const Manifest& manifest) {
  std::int64_t sum = 0;
  for (const TensorRecord& tensor : manifest.tensors) sum += tensor.num_elements();
  return sum;
}

std::string mesh_text(const MeshRecord& mesh) {
  return fmt::format("dp {} · pp {} · tp {}, {}, wrap {}", mesh.dp, mesh.pp, mesh.tp, mesh.strategy, mesh.wrap);
}

// "name: text" lines with the texts below each other.
std::string rows_text(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string text;
  for (const auto& [name, value] : rows) text += fmt::format("{:<12}  {}\n", name, value);
  return text;
}

std::string fields_text(const Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

std::string certificate_text(const std::optional<ResumeCertificate>& certificate) {
  if (!certificate) return "none: the run ended with this save";
  return fmt::format("next batch {}, learning rate {}, random numbers {}, loss {}", hex64(certificate->batch_digest),
                     certificate->learning_rate, hex64(certificate->rng_digest), certificate->loss);
}

std::string difference_text(const TensorDifference& difference) {
  using Kind = TensorDifference::Kind;
  switch (difference.kind) {
    case Kind::kOnlyInFirst: return "only in the first";
    case Kind::kOnlyInSecond: return "only in the second";
    case Kind::kShape: return fmt::format("shape {} and {}", str(difference.first_shape), str(difference.second_shape));
    case Kind::kValues: break;
  }
  return fmt::format("{} elements differ, by at most {:g}, the first is {}", format_count(difference.num_different),
                     difference.max_difference, difference.first_index);
}

std::string_view name_of(TensorDifference::Kind kind) {
  using Kind = TensorDifference::Kind;
  switch (kind) {
    case Kind::kOnlyInFirst: return "only in first";
    case Kind::kOnlyInSecond: return "only in second";
    case Kind::kShape: return "shape";
    case Kind::kValues: return "values";
  }
  return "?";
}

}  // namespace

CheckpointList list_checkpoints(FileSystem& files, const std::string& directory) {
  CheckpointList list{.directory = directory};
  for (const DirectoryEntry& entry : files.list(directory))
    if (const auto step = step_of_unfinished(entry.name))
      list.unfinished.push_back({entry.name, fmt::format("the save of step {} did not end", *step)});
  for (const std::int64_t step : list_steps(files, directory)) {
    ListedCheckpoint& listed = list.checkpoints.emplace_back();
    listed.step = step;
    listed.problem = why_incomplete(files, directory, step);
    if (!listed.problem.empty()) continue;
    const Manifest manifest = read_manifest(files, fmt::format("{}/{}", directory, step_folder_name(step)));
    listed.bytes = manifest.bytes();
    listed.num_files = manifest.files.size();
    listed.saved_at = manifest.saved_at;
    listed.root_hash = manifest.root_hash;
  }
  return list;
}

std::string to_text(const CheckpointList& list) {
  if (list.checkpoints.empty() && list.unfinished.empty()) return fmt::format("{}: no checkpoints\n", list.directory);
  std::string text =
      fmt::format("{:>10}  {:>10}  {:>6}  {:<20}  {:<16}  state\n", "step", "size", "shards", "saved", "root");
  for (const ListedCheckpoint& listed : list.checkpoints) {
    text += listed.problem.empty()
                ? fmt::format("{:>10}  {:>10}  {:>6}  {:<20}  {}  complete\n", listed.step, size_text(listed.bytes),
                              listed.num_files, date_text(listed.saved_at), hex64(listed.root_hash))
                : fmt::format("{:>10}  {:>10}  {:>6}  {:<20}  {:<16}  {}\n", listed.step, "-", "-", "-", "-",
                              listed.problem);
  }
  for (const SkippedCheckpoint& unfinished : list.unfinished)
    text += fmt::format("{}: {}\n", unfinished.folder, unfinished.reason);
  return text;
}

std::string to_json(const CheckpointList& list) {
  OrderedJson checkpoints = OrderedJson::array();
  for (const ListedCheckpoint& listed : list.checkpoints) {
    OrderedJson entry{{"step", listed.step}, {"complete", listed.problem.empty()}, {"problem", listed.problem}};
    if (listed.problem.empty()) {
      entry["bytes"] = listed.bytes;
      entry["shards"] = listed.num_files;
      entry["saved_at"] = listed.saved_at;
      entry["root_hash"] = hex64(listed.root_hash);
    }
    checkpoints.push_back(std::move(entry));
  }
  OrderedJson unfinished = OrderedJson::array();
  for (const SkippedCheckpoint& folder : list.unfinished)
    unfinished.push_back({{"folder", folder.folder}, {"reason", folder.reason}});
  return dumped({{"directory", list.directory}, {"checkpoints", checkpoints}, {"unfinished", unfinished}});
}

std::string to_text(const std::string& folder, const Manifest& manifest, bool tensors) {
  const TrainingState& training = manifest.training;
  std::string text = rows_text(
      {{"checkpoint", folder},
       {"step", fmt::format("{}, saved {}", manifest.step, date_text(manifest.saved_at))},
       {"state", fmt::format("{} tensors, {} elements, {} in {} shards{}", manifest.tensors.size(),
                             format_count(num_elements(manifest)), size_text(manifest.bytes()), manifest.files.size(),
                             manifest.weights_only ? "; weights alone, no run to go on with" : "")},
       {"root hash", hex64(manifest.root_hash)},
       {"state hash", hex64(manifest.state_hash)},
       {"run", hex64(manifest.run_id)},
       {"mesh", mesh_text(training.mesh)},
       {"data", fmt::format("next batch {}, epoch {}, {} tokens seen", training.data.next_batch, training.data.epoch,
                            format_count(training.data.tokens_seen))},
       {"schedule",
        fmt::format("{} updates made, decay over {}", training.schedule.updates, training.schedule.decay_steps)},
       {"loss scale",
        fmt::format("{}, {} steps skipped", training.loss_scaler.scale, training.loss_scaler.skipped_steps)},
       {"seed", fmt::format("{}", training.rng.seed)},
       {"model", fields_text(manifest.model)},
       {"numerics", fields_text(training.numerics)},
       {"certificate", certificate_text(training.certificate)}});
  if (!tensors) return text;
  std::size_t width = 0;
  for (const TensorRecord& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  for (const TensorRecord& tensor : manifest.tensors)
    text += fmt::format("  {:<{}}  {} {}, {} slices\n", tensor.name, width, tensor.dtype, str(tensor.shape),
                        tensor.slices.size());
  return text;
}

std::string to_json(const std::string& folder, const Manifest& manifest) {
  // The manifest is JSON already; block hashes are for machines that read it itself.
  OrderedJson json = OrderedJson::parse(encode_manifest(manifest));
  json.erase("manifest_hash");
  for (OrderedJson& file : json["files"]) file.erase("block_hashes");
  for (OrderedJson& tensor : json["tensors"]) tensor.erase("block_digests");
  OrderedJson with_folder{{"folder", folder}};
  with_folder.update(json);
  return dumped(with_folder);
}

std::string to_text(const std::string& folder, const VerifyReport& report) {
  if (report.ok())
    return fmt::format("ok: {}: {} shards, {}, {} blocks, root {}\n", folder, report.num_files,
                       size_text(report.num_bytes), report.num_blocks, hex64(report.root_hash));
  std::string text;
  for (const std::string& line : report.damage) text += line + "\n";
  return text;
}

std::string to_json(const std::string& folder, const VerifyReport& report) {
  OrderedJson json{{"folder", folder},          {"ok", report.ok()},         {"damage", report.damage},
                   {"files", report.num_files}, {"bytes", report.num_bytes}, {"blocks", report.num_blocks},
                   {"root_hash", nullptr}};
  if (report.ok()) json["root_hash"] = hex64(report.root_hash);
  return dumped(json);
}

std::string to_text(const CheckpointDiff& diff) {
  std::string text;
  for (const std::string& field : diff.model) text += fmt::format("model {}\n", field);
  if (diff.same_root) return text + "equal: the same root hash\n";
  std::size_t width = 0;
  for (const TensorDifference& difference : diff.differences) width = std::max(width, difference.name.size());
  for (const TensorDifference& difference : diff.differences)
    text += fmt::format("{:<{}}  {}\n", difference.name, width, difference_text(difference));
  return text + fmt::format("{} tensors differ\n", diff.differences.size());
}

std::string to_json(const CheckpointDiff& diff) {
  OrderedJson differences = OrderedJson::array();
  for (const TensorDifference& difference : diff.differences) {
    OrderedJson entry{{"tensor", difference.name}, {"differs", name_of(difference.kind)}};
    if (difference.kind == TensorDifference::Kind::kShape) {
      entry["first_shape"] = difference.first_shape;
      entry["second_shape"] = difference.second_shape;
    } else if (difference.kind == TensorDifference::Kind::kValues) {
      entry["elements"] = difference.num_different;
      entry["first_index"] = difference.first_index;
      entry["max_difference"] = difference.max_difference;  // null where it is not a number
    }
    differences.push_back(std::move(entry));
  }
  return dumped({{"equal", diff.same_root}, {"model", diff.model}, {"tensors", differences}});
}

}  // namespace tessera
