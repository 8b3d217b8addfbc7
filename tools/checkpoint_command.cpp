#include "tools/checkpoint_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/catalog.h"
#include "checkpoint/diff.h"
#include "checkpoint/verify.h"
#include "runtime/base/error.h"
#include "tools/checkpoint_text.h"
#include "tools/huggingface_command.h"

namespace tessera {
namespace {

struct CheckpointOptions {
  std::string path, other;
  bool json = false, tensors = false;
};

int print_checkpoint(const std::string& text, bool good = true) {
  std::fputs(text.c_str(), stdout);
  return static_cast<int>(good ? ExitCode::kDone : ExitCode::kCheckpoint);
}

int run_list(const CheckpointOptions& options) {
  const auto files = make_posix_file_system();
  const CheckpointList list = list_checkpoints(*files, resolve_directory(*files, options.path));
  return print_checkpoint(options.json ? to_json(list) : to_text(list));
}

int run_show(const CheckpointOptions& options) {
  const auto files = make_posix_file_system();
  const std::string folder = resolve_checkpoint(*files, options.path);
  const Manifest manifest = read_manifest(*files, folder);
  return print_checkpoint(options.json ? to_json(folder, manifest) : to_text(folder, manifest, options.tensors));
}

int run_verify(const CheckpointOptions& options) {
  const auto files = make_posix_file_system();
  const std::string folder = resolve_checkpoint(*files, options.path);
  const VerifyReport report = verify_checkpoint(*files, folder);
  return print_checkpoint(options.json ? to_json(folder, report) : to_text(folder, report), report.ok());
}

int run_diff(const CheckpointOptions& options) {
  const auto files = make_posix_file_system();
  CheckpointReader first = CheckpointReader::open(*files, resolve_checkpoint(*files, options.path));
  CheckpointReader second = CheckpointReader::open(*files, resolve_checkpoint(*files, options.other));
  const CheckpointDiff diff = diff_checkpoints(first, second);
  return print_checkpoint(options.json ? to_json(diff) : to_text(diff), diff.same_root);
}

constexpr const char* kPathText = "a checkpoint's folder, or a run: its newest that is complete";

}  // namespace

void add_checkpoint_commands(CLI::App& app, int& exit_code) {
  CLI::App* checkpoint =
      app.add_subcommand("checkpoint", "look into checkpoints, check them, compare them; Hugging Face models");
  checkpoint->footer("tessera checkpoint list runs/a\ntessera checkpoint verify runs/a");
  checkpoint->require_subcommand(1);
  const auto options = std::make_shared<CheckpointOptions>();
  const auto add = [&](const char* name, const char* text, const char* examples, const char* path,
                       const std::function<int(const CheckpointOptions&)>& run) {
    CLI::App* command = checkpoint->add_subcommand(name, text);
    command->footer(examples);
    command->add_option("PATH", options->path, path)->required();
    command->add_flag("--json", options->json, "for programs (docs/checkpoint-format.md)");
    command->callback([options, run, &exit_code] { exit_code = run(*options); });
    return command;
  };
  add("list", "steps, sizes, and why some would not load", "tessera checkpoint list runs/a",
      "a run, or a folder of checkpoints", run_list);
  add("show", "what is in a checkpoint",
      "tessera checkpoint show runs/a\ntessera checkpoint show runs/a/checkpoints/step-00000120 --tensors", kPathText,
      run_show)
      ->add_flag("--tensors", options->tensors, "every tensor, and in how many pieces it lies");
  add("verify", "read and check every byte; exit code 5 where one is damaged", "tessera checkpoint verify runs/a",
      kPathText, run_verify);
  add("diff", "tensors in which two checkpoints differ, whatever their layouts; exit code 5 where some do",
      "tessera checkpoint diff runs/a runs/b\n"
      "tessera checkpoint diff runs/a/checkpoints/step-00000120 runs/a/checkpoints/step-00000130",
      kPathText, run_diff)
      ->add_option("OTHER", options->other, "another")
      ->required();
  add_huggingface_commands(*checkpoint, exit_code);
}

}  // namespace tessera
