#include "tools/huggingface_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/new_folder.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/train/huggingface_export.h"
#include "runtime/train/huggingface_import.h"
#include "runtime/train/logits.h"
#include "runtime/train/reporter.h"
#include "tools/interrupt_guard.h"

namespace tessera {
namespace {

struct HuggingFaceOptions {
  std::string from, to;
  std::uint64_t max_shard_bytes = kDefaultMaxShardBytes;
  std::vector<std::int32_t> tokens;
};

// Runs `fill` on a folder that gets its name at the end; a signal before that leaves nothing behind. Returns the name.
std::string make_folder(FileSystem& files, const std::string& path,
                        const std::function<void(const NewFolder& folder)>& fill) {
  NewFolder folder(files, path);
  const InterruptGuard guard([&] {
    // Beside the work, which may have made one more file meanwhile: it makes none in a folder that is gone.
    for (int attempt = 0; attempt < 3; ++attempt) {
      try {
        files.remove(folder.temporary());
      } catch (const CheckpointError&) {
        continue;
      }
    }
  });
  fill(folder);
  folder.commit();
  return folder.path();
}

std::string list_of(const std::vector<std::string>& names) {
  return names.empty() ? "none found" : fmt::format("{}", fmt::join(names, ", "));
}

void print_model(const std::string& text) {
  std::fputs(text.c_str(), stdout);
}

// A path that a shell variable left empty.
void require_target(const HuggingFaceOptions& options) {
  if (options.to.empty()) throw ConfigError("checkpoint: the folder to make is ''", "a path that does not exist yet");
}

void run_import(const HuggingFaceOptions& options) {
  require_target(options);
  const auto files = make_posix_file_system();
  ImportedModel imported;
  const std::string run = make_folder(*files, options.to, [&](const NewFolder& folder) {
    imported = import_huggingface(*files, options.from, folder.temporary(), folder.path());
  });
  std::string text = fmt::format("imported {}: {}, {} parameters, root {}\n", options.from, name_of(imported.layout),
                                 format_count(imported.num_parameters), hex64(imported.root_hash));
  text += fmt::format("tokenizer: {}\n", list_of(imported.tokenizer_files));
  for (const std::string& note : imported.notes) text += fmt::format("note: {}\n", note);
  const std::string generate =
      imported.tokenizer.empty() ? "" : fmt::format("tessera generate {} --prompt \"The\"; or ", run);
  text += fmt::format("{} | next: {}set data.train in {}/config.yaml, then tessera train it\n", run, generate, run);
  print_model(text);
}

void run_export(const HuggingFaceOptions& options) {
  require_target(options);
  const auto files = make_posix_file_system();
  ExportedModel exported;
  const std::string made = make_folder(*files, options.to, [&](const NewFolder& folder) {
    exported = export_huggingface(*files, options.from, folder.temporary(), options.max_shard_bytes);
  });
  print_model(fmt::format(
      "exported {}: {}, {} of weights in {}\ntokenizer: {}\n{} | next: "
      "transformers.AutoModelForCausalLM.from_pretrained(\"{}\")\n",
      exported.checkpoint, name_of(exported.layout), format_bytes(static_cast<std::int64_t>(exported.bytes)),
      exported.weight_files.size() == 1 ? exported.weight_files.front()
                                        : fmt::format("{} files", exported.weight_files.size()),
      list_of(exported.tokenizer_files), made, made));
}

void run_logits(const HuggingFaceOptions& options) {
  const auto files = make_posix_file_system();
  const std::vector<float> logits = checkpoint_logits(*files, resolve_checkpoint(*files, options.from), options.tokens);
  const std::size_t vocabulary = logits.size() / options.tokens.size();
  std::string text = "[";
  for (std::size_t i = 0; i < logits.size(); ++i)
    text += fmt::format("{}{:.9g}{}", i % vocabulary == 0 ? (i == 0 ? "[" : ",\n[") : ", ", logits[i],
                        i % vocabulary == vocabulary - 1 ? "]" : "");
  print_model(text + "]\n");
}

}  // namespace

void add_huggingface_commands(CLI::App& checkpoint, int& exit_code) {
  const auto options = std::make_shared<HuggingFaceOptions>();
  const auto add = [&](const char* name, const char* text, const char* examples,
                       void (*run)(const HuggingFaceOptions&)) {
    CLI::App* command = checkpoint.add_subcommand(name, text);
    command->footer(examples);
    command->callback([options, run, &exit_code] {
      run(*options);
      exit_code = static_cast<int>(ExitCode::kDone);
    });
    return command;
  };
  constexpr const char* kCheckpointText = "a checkpoint's folder, or a run: its newest that is complete";

  CLI::App* import = add("import", "make a run directory of a Hugging Face model (GPT-2, Llama; safetensors)",
                         "tessera checkpoint import ./gpt2 runs/gpt2", run_import);
  import->add_option("HF_DIR", options->from, "a folder with config.json and model.safetensors")->required();
  import->add_option("RUN", options->to, "the run directory to make; it must not exist")->required();

  CLI::App* export_ = add("export", "make a Hugging Face folder of a checkpoint, for transformers",
                          "tessera checkpoint export runs/a ./a-hf\n"
                          "tessera checkpoint export runs/a/checkpoints/step-00000120 ./a-hf --max-shard-size 500MB",
                          run_export);
  export_->add_option("CHECKPOINT", options->from, kCheckpointText)->required();
  export_->add_option("HF_DIR", options->to, "the folder to make; it must not exist")->required();
  export_->add_option("--max-shard-size", options->max_shard_bytes, "largest weight file (5GB)")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber)
      ->option_text("SIZE");

  // For tools/compare_with_transformers.py.
  CLI::App* logits = add("logits", "print the logits of each token of a text, as JSON",
                         "tessera checkpoint logits runs/a --tokens 1,2,3", run_logits);
  logits->group("");
  logits->add_option("CHECKPOINT", options->from, kCheckpointText)->required();
  logits->add_option("--tokens", options->tokens, "ids, at most seq_len of them")->required()->delimiter(',');
}

}  // namespace tessera
