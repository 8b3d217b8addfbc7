#include "checkpoint/catalog.h"

#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/folders.h"
#include "checkpoint/huggingface_files.h"
#include "checkpoint/reader.h"
#include "runtime/base/error.h"

namespace tessera {

std::string why_incomplete(FileSystem& files, const std::string& directory, std::int64_t step) {
  try {
    const std::string folder = fmt::format("{}/{}", directory, step_folder_name(step));
    const CheckpointReader reader = CheckpointReader::open(files, folder);
    if (reader.manifest().step != step)
      return fmt::format("{}: its manifest is of step {}", folder, reader.manifest().step);
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

LatestCheckpoint find_latest(FileSystem& files, const std::string& directory, std::int64_t below) {
  LatestCheckpoint latest;
  const std::vector<std::int64_t> steps = list_steps(files, directory);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step >= below) continue;
    std::string reason = why_incomplete(files, directory, *step);
    if (reason.empty()) {
      latest.step = *step;
      latest.folder = fmt::format("{}/{}", directory, step_folder_name(*step));
      break;
    }
    latest.skipped.push_back({step_folder_name(*step), std::move(reason)});
  }
  if (!files.exists(directory)) return latest;
  for (const DirectoryEntry& entry : files.list(directory))
    if (const auto step = step_of_unfinished(entry.name))
      latest.skipped.push_back({entry.name, fmt::format("the save of step {} did not end", *step)});
  return latest;
}

std::string resolve_directory(FileSystem& files, const std::string& path) {
  const std::string inside = path + "/checkpoints";
  return files.exists(inside) ? inside : path;
}

std::string run_of_checkpoint(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path path = fs::path(folder).lexically_normal();
  const fs::path checkpoint = path.has_filename() ? path : path.parent_path();
  const fs::path parent = checkpoint.parent_path();
  if (parent.filename() != "checkpoints") return checkpoint.string();
  return parent.has_parent_path() ? parent.parent_path().string() : ".";
}

std::string resolve_checkpoint(FileSystem& files, const std::string& path) {
  constexpr const char* kMeant = "a run directory, or the folder of a checkpoint";
  if (!files.exists(path)) throw CheckpointError(fmt::format("{}: there is nothing", path), kMeant);
  // A checkpoint that lost its manifest is still meant as one where its name says so.
  const std::string name = std::filesystem::path(path).filename().string();
  if (step_of_folder(name) || files.exists(fmt::format("{}/{}", path, kManifestName))) return path;
  const LatestCheckpoint latest = find_latest(files, resolve_directory(files, path));
  if (latest.step) return latest.folder;
  const bool is_huggingface = files.exists(fmt::format("{}/{}", path, kHuggingFaceConfigName));
  throw CheckpointError(fmt::format("{}: no complete checkpoint{}", path,
                                    latest.skipped.empty() ? "" : "; " + latest.skipped.front().reason),
                        is_huggingface ? "a Hugging Face model: tessera checkpoint import makes a run of it" : kMeant);
}

}  // namespace tessera
