#include "runtime/train/run_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace fs = std::filesystem;

namespace tessera {

namespace {

// What this program writes into a run directory (docs/run-directory.md).
bool is_of_a_run(const std::string& name) {
  for (const char* ours : {"config.yaml", "plan.json", "metrics.jsonl", "logs", "collectives", ".nonce",
                           "config.yaml.tmp", "plan.json.tmp", ".nonce.tmp"}) {
    if (name == ours) return true;
  }
  return false;
}

}  // namespace

std::string RunDirectory::log(int world_rank) const {
  return fmt::format("{}/logs/rank-{:05}.log", path_, world_rank);
}
std::string RunDirectory::collective_log(int world_rank) const {
  return fmt::format("{}/collectives/rank-{:05}.log", path_, world_rank);
}

std::vector<fs::path> RunDirectory::files_of_an_earlier_run() const {
  std::vector<fs::path> old;
  std::string stranger;
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (is_of_a_run(name)) {
      old.push_back(entry.path());
    } else if (name != "attempts" && name != ".lock") {
      stranger = name;
    }
  }
  const bool holds_a_run =
      fs::exists(plan()) || fs::exists(fs::path(path_) / "attempts") || fs::exists(fs::path(path_) / "collectives");
  if (!stranger.empty() && !holds_a_run) {
    throw ConfigError(fmt::format("run directory {}: holds {}, which is not a run's", path_, stranger),
                      "choose a directory that is empty or holds a run");
  }
  return old;
}

void RunDirectory::acquire(const std::string& host, std::optional<RunLock>& lock) const {
  try {
    if (fs::exists(path_) && !fs::is_directory(path_))
      throw DeviceError(fmt::format("run directory {}: is not a directory", path_));
    fs::create_directories(path_);
    files_of_an_earlier_run();  // somebody else's directory gets no file of ours, not even a lock
    lock.emplace(path_, host);
  } catch (const fs::filesystem_error& error) {
    throw DeviceError(fmt::format("run directory {}: {}", path_, error.code().message()));
  }
}

int RunDirectory::prepare() const {
  try {
    const std::vector<fs::path> old = files_of_an_earlier_run();
    int attempt = 0;
    if (!old.empty()) {
      for (attempt = 1; fs::exists(fs::path(path_) / "attempts" / std::to_string(attempt)); ++attempt) {
      }
      const fs::path target = fs::path(path_) / "attempts" / std::to_string(attempt);
      fs::create_directories(target);
      for (const fs::path& file : old) fs::rename(file, target / file.filename());
    }
    fs::create_directories(fs::path(path_) / "logs");
    fs::create_directories(fs::path(path_) / "collectives");
    return attempt;
  } catch (const fs::filesystem_error& error) {
    throw DeviceError(fmt::format("run directory {}: {}", path_, error.code().message()));
  }
}

void RunDirectory::write_nonce(std::uint64_t nonce) const {
  write_file(path_ + "/.nonce", hex64(nonce));
}

void RunDirectory::check_visible(std::uint64_t nonce) const {
  std::ifstream file(path_ + "/.nonce");
  std::string text;
  if (!(file >> text) || text != hex64(nonce)) {
    throw DeviceError(fmt::format("run directory {}: rank 0 created it, but this rank does not see it", path_),
                      "all ranks need one file system under --run-dir");
  }
}

void RunDirectory::remove_nonce() const {
  std::error_code ignored;
  fs::remove(path_ + "/.nonce", ignored);
}

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed || std::rename(temporary.c_str(), path.c_str()) != 0) {
    throw DeviceError(fmt::format("{}: {}", path, std::strerror(written ? errno : error)));
  }
}

}  // namespace tessera
