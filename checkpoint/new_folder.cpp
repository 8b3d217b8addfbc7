#include "checkpoint/new_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/folders.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"

namespace tessera {
namespace {

void make_parents(FileSystem& files, const std::string& path) {
  const std::string parent = parent_directory(path);
  if (parent == path || files.exists(parent)) return;
  make_parents(files, parent);
  files.make_directory(parent);
  files.sync_directory(parent_directory(parent));
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

NewFolder::NewFolder(FileSystem& files, const std::string& path)
    : files_(files), path_(without_trailing_slashes(path)) {
  if (files.exists(path_))
    throw CheckpointError(fmt::format("{}: is there already, and is never written over", path_), "another name");
  make_parents(files, path_);
  temporary_ = fmt::format("{}/.{}.new-{}", parent_directory(path_), std::filesystem::path(path_).filename().string(),
                           hex64(make_nonce()));
  files.make_directory(temporary_);
}

NewFolder::~NewFolder() {
  if (committed_) return;
  try {
    files_.remove(temporary_);
  } catch (const CheckpointError& error) {
    // The error that ended the work is the one to hear about.
    log::warn(fmt::format("{} stays: {}", temporary_, error.what()));
  } catch (...) {  // nothing passes a destructor
  }
}

void NewFolder::commit() {
  files_.sync_directory(temporary_);
  files_.rename(temporary_, path_);
  committed_ = true;
  files_.sync_directory(parent_directory(path_));
}

}  // namespace tessera
