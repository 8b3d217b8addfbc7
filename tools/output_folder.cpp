#include "tools/output_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/train/tokenizer_companions.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The names that a folder's own summary lists, and those that every folder may have.
std::set<std::string> names_written_by_us(const fs::path& folder) {
  std::set<std::string> names;
  std::ifstream in(folder / kSummaryName);
  const auto summary = nlohmann::json::parse(in, nullptr, false);
  if (!summary.is_object() || !summary.contains("format")) return names;
  for (const char* side : {"train", "validation"}) {
    const auto found = summary.find(side);
    if (found == summary.end() || !found->is_object()) continue;
    for (const auto& name : found->value("files", nlohmann::json::array())) {
      if (name.is_string()) names.insert(name.get<std::string>());
    }
  }
  names.insert({std::string(kSummaryName), std::string(kTokenizerName), std::string(kJsonTokenizerName)});
  names.insert(companion_names().begin(), companion_names().end());
  return names;
}

// New files may appear in it while it is removed: the work goes on until the process ends.
void remove_for_good(const fs::path& folder) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (!fs::exists(folder, error)) return;
  }
}

}  // namespace

OutputFolder::OutputFolder(const std::string& path, bool overwrite) : given_(path) {
  try {
    open(path, overwrite);
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("--output {}: {}", path, error.code().message()));
  }
}

void OutputFolder::open(const std::string& path, bool overwrite) {
  if (path.empty()) throw ConfigError("--output: is empty, expected a folder");
  path_ = fs::absolute(path).lexically_normal();
  if (!path_.has_filename()) path_ = path_.parent_path();
  const fs::file_status status = fs::symlink_status(path_);
  if (fs::is_symlink(status)) {
    throw ConfigError(fmt::format("--output {}: is a symbolic link, and would be replaced", path),
                      fmt::format("the folder itself: {}", fs::read_symlink(path_).string()));
  }
  const bool exists = fs::exists(status);
  if (exists && !fs::is_directory(status))
    throw ConfigError(fmt::format("--output {}: is a file, expected a folder", path));
  replaces_ = exists && !fs::is_empty(path_);
  if (replaces_ && !overwrite)
    throw ConfigError(fmt::format("--output {}: holds files already", path), "--overwrite, or another folder");
  if (replaces_) files_to_replace();
  temporary_ = path_;
  temporary_ += fmt::format(".partial-{}", ::getpid());
  guard_ = std::make_unique<InterruptGuard>([this] {
    making_.lock();  // for good: what is not made yet must not be made after this
    remove_for_good(temporary_);
  });
  const std::lock_guard making(making_);
  std::error_code error;
  fs::create_directories(temporary_, error);
  if (error) throw DataError(fmt::format("{}: cannot create: {}", temporary_.string(), error.message()));
}

OutputFolder::~OutputFolder() {
  guard_.reset();
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

// A mistyped --output may name a home.
std::vector<fs::path> OutputFolder::files_to_replace() const {
  const std::set<std::string> ours = names_written_by_us(path_);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (!fs::is_regular_file(entry.symlink_status()) || !ours.contains(name)) {
      throw ConfigError(
          fmt::format("--output {}: holds {}, which data prepare did not make: not overwritten", given_, name));
    }
    files.emplace_back(name);
  }
  return files;
}

void OutputFolder::commit() {
  guard_.reset();  // from here on it is two renames
  try {
    replace();
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("{}: cannot move into place: {}", path_.string(), error.code().message()));
  }
  temporary_.clear();
}

void OutputFolder::replace() {
  if (!replaces_) return fs::rename(temporary_, path_);
  const std::vector<fs::path> files = files_to_replace();  // again: what came while the text was read is not ours
  fs::path old = path_;
  old += fmt::format(".old-{}", ::getpid());
  fs::rename(path_, old);
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) {
    fs::rename(old, path_);
    throw fs::filesystem_error("rename", temporary_, path_, error);
  }
  for (const fs::path& file : files) fs::remove(old / file, error);
  if (!fs::remove(old, error)) log::warn(fmt::format("{}: holds what data prepare did not make: kept", old.string()));
}

}  // namespace tessera
