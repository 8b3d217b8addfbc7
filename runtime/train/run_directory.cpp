#include "runtime/train/run_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/train/metrics_file.h"

namespace fs = std::filesystem;

namespace tessera {

namespace {

// What this program writes into a run directory (docs/run-directory.md).
bool is_of_a_run(const std::string& name) {
  for (const char* ours : {"config.yaml", "plan.json", "metrics.jsonl", "logs", "collectives", "trace", "checkpoints",
                           ".nonce", "config.yaml.tmp", "plan.json.tmp", "metrics.jsonl.tmp", ".nonce.tmp"}) {
    if (name == ours) return true;
  }
  return false;
}

// Names alone may be anybody's, "logs" above all. A run writes config.yaml with its plan; until then it is known by its nonce.
bool holds_a_run(const fs::path& folder) {
  const auto has = [&](const char* name) { return fs::exists(folder / name); };
  return has(".nonce") || (has("config.yaml") && (has("plan.json") || has("metrics.jsonl")));
}

// What `tessera checkpoint import` makes: no run has been there.
bool holds_an_import(const fs::path& folder) {
  return fs::exists(folder / "config.yaml") && fs::exists(folder / "checkpoints" / "step-00000000");
}

}  // namespace

std::string RunDirectory::log(int world_rank) const {
  return fmt::format("{}/logs/rank-{:05}.log", path_, world_rank);
}
std::string RunDirectory::collective_log(int world_rank) const {
  return fmt::format("{}/collectives/rank-{:05}.log", path_, world_rank);
}

std::string RunDirectory::trace(int world_rank) const {
  return fmt::format("{}/rank-{:05}.json", trace_folder(), world_rank);
}

std::vector<fs::path> RunDirectory::files_of_an_earlier_run() const {
  std::vector<fs::path> old;
  std::string stranger;
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name == ".lock") continue;
    if (is_of_a_run(name)) old.push_back(entry.path());
    if (stranger.empty() || !is_of_a_run(name)) stranger = name;
  }
  bool ours = holds_a_run(path_);
  for (int k = 1; !ours && fs::exists(attempt(k)); ++k) ours = holds_a_run(attempt(k));
  if (!stranger.empty() && !ours) {
    if (holds_an_import(path_))
      throw ConfigError(fmt::format("run directory {}: holds an import, which stays as it is", path_),
                        fmt::format("checkpoint.init_from: {}, and another --run-dir", path_));
    throw ConfigError(fmt::format("run directory {}: holds {}, which is not a run's", path_, stranger),
                      "choose a directory that is empty or holds a run");
  }
  return old;
}

std::string RunDirectory::attempt(int number) const {
  return fmt::format("{}/attempts/{}", path_, number);
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

int RunDirectory::prepare(std::uint64_t nonce, const std::optional<Progress>& resumed) const {
  try {
    const std::vector<fs::path> old = files_of_an_earlier_run();
    // First: should it end among what comes next, the directory is a run's by this file alone.
    write_file(path_ + "/.nonce", hex64(nonce));
    int number = 0;
    if (!old.empty()) {
      for (number = 1; fs::exists(attempt(number)); ++number) {
      }
      fs::create_directories(attempt(number));
      for (const fs::path& file : old) {
        const fs::path kept = fs::path(attempt(number)) / file.filename();
        if (file.filename() == ".nonce") continue;
        if (resumed && file.filename() == "checkpoints") continue;
        if (resumed && file.filename() == "metrics.jsonl") {
          fs::copy_file(file, kept);
          cut_metrics(file, *resumed);
        } else {
          fs::rename(file, kept);
        }
      }
    }
    fs::create_directories(fs::path(path_) / "logs");
    fs::create_directories(fs::path(path_) / "collectives");
    return number;
  } catch (const fs::filesystem_error& error) {
    throw DeviceError(fmt::format("run directory {}: {}", path_, error.code().message()));
  }
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
