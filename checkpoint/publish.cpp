#include "checkpoint/publish.h"

#include <fmt/format.h>

#include <ctime>

#include "checkpoint/folders.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

void make_checkpoints_directory(FileSystem& files, const std::string& directory) {
  if (files.exists(directory)) return;
  files.make_directory(directory);
  files.sync_directory(parent_directory(directory));
}

// A checkpoint that is saved counts even where an older one cannot be deleted.
void retain(FileSystem& files, const std::string& directory, const RetentionPolicy& policy,
            std::vector<std::string>& warnings) {
  try {
    delete_checkpoints(files, directory, steps_to_delete(list_steps(files, directory), policy));
  } catch (const CheckpointError& error) {
    warnings.push_back(fmt::format("an old checkpoint was not deleted: {}", error.line()));
  }
}

}  // namespace

std::string open_save(FileSystem& files, const std::string& directory, std::int64_t step, std::uint64_t bytes) {
  make_checkpoints_directory(files, directory);
  const std::string final_name = fmt::format("{}/{}", directory, step_folder_name(step));
  if (files.exists(final_name))
    throw CheckpointError(fmt::format("{}: is there already, and is never written over", final_name));
  const std::string folder = fmt::format("{}/{}", directory, saving_folder_name(step, make_nonce()));
  if (const std::uint64_t available = files.free_bytes(directory); available < bytes)
    throw_disk_full(folder, bytes, available);
  files.make_directory(folder);
  return folder;
}

Manifest publish(FileSystem& files, const std::string& folder, Manifest manifest,
                 const std::vector<ShardReport>& reports, const RetentionPolicy& retention,
                 std::vector<std::string>& warnings) {
  const std::string directory = parent_directory(folder);
  const std::string path = fmt::format("{}/{}", folder, kManifestName);
  manifest.saved_at = std::time(nullptr);
  assemble(manifest, reports, path);
  write_small_file(files, path, encode_manifest(manifest));
  files.sync_directory(folder);
  files.rename(folder, fmt::format("{}/{}", directory, step_folder_name(manifest.step)));
  files.sync_directory(directory);
  retain(files, directory, retention, warnings);
  return manifest;
}

}  // namespace tessera
