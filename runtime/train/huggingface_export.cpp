#include "runtime/train/huggingface_export.h"

#include <fmt/format.h>

#include "checkpoint/catalog.h"
#include "checkpoint/huggingface_files.h"
#include "checkpoint/huggingface_writer.h"
#include "checkpoint/reader.h"
#include "models/gpt.h"
#include "runtime/base/error.h"
#include "runtime/train/huggingface_tokenizer.h"
#include "runtime/train/load_weights.h"
#include "runtime/train/saved_job.h"

namespace tessera {
namespace {

std::vector<std::string> copy_tokenizer(FileSystem& files, const std::vector<FileToCopy>& found,
                                        const std::string& into, SpecialTokens& tokens) {
  std::vector<std::string> names;
  for (const FileToCopy& file : found) {
    copy_file(files, file.path, fmt::format("{}/{}", into, file.name));
    if (file.name == "generation_config.json")
      tokens = read_special_tokens(read_small_file(files, file.path, kMaxHuggingFaceConfigBytes), file.path);
    names.push_back(file.name);
  }
  return names;
}

}  // namespace

ExportedModel export_huggingface(FileSystem& files, const std::string& checkpoint, const std::string& into,
                                 std::uint64_t max_shard_bytes) {
  ExportedModel exported{.checkpoint = resolve_checkpoint(files, checkpoint)};
  CheckpointReader reader = CheckpointReader::open(files, exported.checkpoint);
  const Manifest& manifest = reader.manifest();
  const JobConfig job = saved_job(manifest, exported.checkpoint);
  const ModelSpec spec = describe_gpt(job.model, 1);
  check_model(manifest, exported.checkpoint, expected_weight_fields(job.model, manifest.model), expected_weights(spec),
              ExtraTensors::kIgnore);
  exported.step = manifest.step;
  exported.layout = write_huggingface_config(job.model, {}).layout;  // refuses before anything is written

  SpecialTokens tokens;
  exported.tokenizer_files = copy_tokenizer(
      files, tokenizer_files_of_run(files, run_of_checkpoint(exported.checkpoint), job.data.tokenizer), into, tokens);
  WrittenWeights weights =
      write_huggingface_weights(files, into, huggingface_outputs(exported.layout, spec.parameters), max_shard_bytes,
                                [&](const std::vector<TargetSlice>& targets) { reader.read(targets); });
  exported.weight_files = std::move(weights.files);
  exported.bytes = weights.bytes;
  write_small_file(files, fmt::format("{}/{}", into, kHuggingFaceConfigName),
                   write_huggingface_config(job.model, tokens).text);
  return exported;
}

}  // namespace tessera
