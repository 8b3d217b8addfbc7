#include "runtime/train/init_from.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/catalog.h"
#include "checkpoint/huggingface_reader.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/train/huggingface_import.h"
#include "runtime/train/load_weights.h"
#include "runtime/train/run_state.h"

namespace tessera {
namespace {

std::string load_huggingface(FileSystem& files, RankExchange& ranks, const std::string& folder,
                             const ModelConfig& config, ShardedModel& model, StreamView compute,
                             std::vector<std::string>& notes) {
  const HuggingFaceModel source = read_huggingface_folder(files, folder);
  const Fields saved = model_fields(source.model);
  if (const auto different = differences(saved, expected_weight_fields(config, saved)); !different.empty())
    throw CheckpointError(fmt::format("{}: another model: {}", folder, fmt::join(different, "; ")),
                          "tessera checkpoint import writes a job file with the model's section");
  const HuggingFaceReader reader = HuggingFaceReader::open(files, folder, source.layout, model.model().parameters);
  if (ranks.rank() == 0) reader.check_tied_head();
  reader.read(weight_targets(model));
  for (int u = 0; u < model.num_units(); ++u) model.unit(u).mark_written(compute);
  notes = source.notes;
  return fmt::format("weights of {}, a Hugging Face {}", folder, name_of(source.layout));
}

}  // namespace

bool is_huggingface_folder(FileSystem& files, const std::string& path) {
  const auto has = [&](const char* name) { return files.exists(fmt::format("{}/{}", path, name)); };
  return has(kHuggingFaceConfigName) && !has(kManifestName) && !has("checkpoints");
}

std::vector<std::string> init_from(FileSystem& files, RankExchange& ranks, const JobConfig& config, ShardedModel& model,
                                   StreamView compute,
                                   const std::function<void(const std::function<void()>&)>& agreed) {
  const std::string& path = config.checkpoint.init_from;
  // What rank 0 finds, said to all: the newest of a run that is still saving may be another a moment later.
  std::string found;
  agreed([&] {
    if (ranks.rank() != 0 || is_huggingface_folder(files, path)) return;
    try {
      found = resolve_checkpoint(files, path);
    } catch (const CheckpointError& error) {
      throw CheckpointError(fmt::format("checkpoint.init_from: {}", error.what()),
                            "a run, a checkpoint, or the folder of a Hugging Face model");
    }
  });
  const std::string folder = ranks.exchange(found)[0];
  std::string said;
  std::vector<std::string> lines;
  agreed([&] {
    if (folder.empty()) {
      said = load_huggingface(files, ranks, path, config.model, model, compute, lines);
    } else {
      const Manifest manifest = load_weights(files, folder, config.model, model, compute);
      said = fmt::format("weights of {}{}", folder,
                         manifest.weights_only ? "" : fmt::format(", after step {}", manifest.step));
    }
  });
  lines.insert(lines.begin(), fmt::format("init     {} | step 0, a new optimizer", said));
  return lines;
}

}  // namespace tessera
