#include "checkpoint/catalog.h"

#include <fmt/format.h>

#include "checkpoint/folders.h"
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

std::string resolve_checkpoint(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) throw CheckpointError(fmt::format("{}: there is nothing", path));
  const std::string directory = resolve_directory(files, path);
  // A folder without its manifest is still meant as a checkpoint where its name says so.
  if (files.exists(fmt::format("{}/{}", path, kManifestName)) || list_steps(files, directory).empty()) return path;
  const LatestCheckpoint latest = find_latest(files, directory);
  if (latest.step) return latest.folder;
  throw CheckpointError(fmt::format("{}: no complete checkpoint; {}", directory, latest.skipped.front().reason));
}

}  // namespace tessera
