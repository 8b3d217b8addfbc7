#include "runtime/train/huggingface_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/folders.h"
#include "checkpoint/huggingface_reader.h"
#include "checkpoint/publish.h"
#include "checkpoint/streamed_shard.h"
#include "models/gpt.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/huggingface_tokenizer.h"
#include "runtime/train/run_state.h"
#include "runtime/train/tokenizer.h"

namespace tessera {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;
constexpr std::int64_t kPlaceholderSteps = 1000;

std::vector<SourceSlice> whole_tensors(const ModelSpec& spec) {
  std::vector<SourceSlice> tensors;
  for (const ParameterSpec& parameter : spec.parameters)
    tensors.push_back({.name = parameter.name,
                       .shape = extents_of(parameter.shape),
                       .offset = 0,
                       .count = parameter.shape.num_elements()});
  return tensors;
}

ShardReport copy_weights(FileSystem& files, const std::string& folder, const HuggingFaceReader& reader,
                         const std::vector<SourceSlice>& tensors) {
  StreamedShard shard(files, folder, shard_file_name(0, 1), tensors);
  std::vector<float> chunk;
  for (const SourceSlice& tensor : tensors) {
    for (std::int64_t first = 0; first < tensor.count; first += kChunkElements) {
      const std::int64_t count = std::min(kChunkElements, tensor.count - first);
      chunk.resize(static_cast<std::size_t>(count));
      reader.read({{tensor.name, first, count, chunk.data()}});
      shard.append(chunk);
    }
  }
  return shard.finish();
}

// The one that a job names: the first that loads, of those that are there. Many models have both, and a tokenizer.json of a kind that is not read.
std::string choose_tokenizer(const std::string& folder, const ModelConfig& model, ImportedModel& imported) {
  const std::vector<std::string>& found = imported.tokenizer_files;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (std::ranges::find(found, name) == found.end()) continue;
    try {
      check_vocabulary(*load_tokenizer(fmt::format("{}/{}", folder, name)), model.vocab_size);
      return name;
    } catch (const Error& error) {
      imported.notes.push_back(fmt::format("{} is copied, but cannot be used: {}", name, error.what()));
    }
  }
  return "";
}

void copy_tokenizer(FileSystem& files, const std::string& folder, const std::string& into,
                    const HuggingFaceModel& model, std::vector<std::string>& names) {
  if (names.empty() && model.tokens.none()) return;
  const std::string target = into + "/tokenizer";
  files.make_directory(target);
  for (const std::string& name : names)
    copy_file(files, fmt::format("{}/{}", folder, name), fmt::format("{}/{}", target, name));
  // Where config.json alone names the special tokens: an export needs them again.
  constexpr const char* kGenerationName = "generation_config.json";
  if (std::ranges::find(names, kGenerationName) == names.end() && !model.tokens.none()) {
    write_small_file(files, fmt::format("{}/{}", target, kGenerationName), write_special_tokens(model.tokens));
    names.emplace_back(kGenerationName);
  }
  files.sync_directory(target);
}

}  // namespace

std::string imported_job_text(const ModelConfig& model, const std::string& source, const std::string& run_directory,
                              const std::string& tokenizer) {
  JobConfig job;
  // Its default run directory is then not the import itself.
  job.run.name = std::filesystem::path(run_directory).filename().string() + "-tuned";
  job.run.steps = kPlaceholderSteps;
  job.model = model;
  job.data.train = {{"data/train-*.bin", 1.0}};
  job.data.tokenizer = tokenizer;
  job.batch = {.global_batch_size = 8, .micro_batch_size = 1};
  job.optimizer.learning_rate = 1e-5;
  job.checkpoint.init_from = run_directory;
  return fmt::format(
      "# Imported from {} by tessera checkpoint import. Set what the user has to choose: run.steps, data.train, "
      "batch,\n"
      "# optimizer.learning_rate{}. Then: tessera train {}/config.yaml\n{}",
      source, model.positions == "rope" ? ", and model.seq_len to the length of your sequences" : "", run_directory,
      to_yaml(job));
}

HuggingFaceModel read_huggingface_folder(FileSystem& files, const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kHuggingFaceConfigName);
  if (!files.exists(folder)) throw CheckpointError(fmt::format("{}: there is nothing", folder));
  if (!files.exists(path))
    throw CheckpointError(fmt::format("{}: holds no {}", folder, kHuggingFaceConfigName),
                          "the folder of a Hugging Face model");
  return read_huggingface_config(read_small_file(files, path, kMaxHuggingFaceConfigBytes), path);
}

ImportedModel import_huggingface(FileSystem& files, const std::string& folder, const std::string& into,
                                 const std::string& run_directory) {
  const HuggingFaceModel model = read_huggingface_folder(files, folder);
  const ModelSpec spec = describe_gpt(model.model, 1);
  const HuggingFaceReader reader = HuggingFaceReader::open(files, folder, model.layout, spec.parameters);
  reader.check_tied_head();

  ImportedModel imported{.layout = model.layout,
                         .num_parameters = spec.num_parameters(),
                         .tokenizer_files = tokenizer_files_in(files, folder),
                         .notes = model.notes};
  imported.tokenizer = choose_tokenizer(folder, model.model, imported);
  const std::string text = imported_job_text(
      model.model, folder, run_directory,
      imported.tokenizer.empty() ? "" : fmt::format("{}/tokenizer/{}", run_directory, imported.tokenizer));
  const std::vector<SourceSlice> tensors = whole_tensors(spec);
  const std::string save = open_save(files, into + "/checkpoints", 0, plan_shard(tensors).bytes);
  const ShardReport report = copy_weights(files, save, reader, tensors);
  const JobConfig defaults;
  Manifest manifest{
      .run_id = make_nonce(),
      .step = 0,
      .weights_only = true,
      .model = model_fields(model.model),
      .training = {.config = text, .mesh = {.strategy = defaults.fsdp.strategy, .wrap = defaults.fsdp.wrap}}};
  std::vector<std::string> warnings;
  imported.root_hash = publish(files, save, std::move(manifest), {report}, {}, warnings).root_hash;
  copy_tokenizer(files, folder, into, model, imported.tokenizer_files);
  write_small_file(files, into + "/config.yaml", text);
  return imported;
}

}  // namespace tessera
