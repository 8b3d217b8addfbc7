// The files of a run (docs/run-directory.md). Machine-read files are per rank or written by one rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/train/run_lock.h"
#include "runtime/train/run_state.h"

namespace tessera {

class RunDirectory {
 public:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string config() const { return path_ + "/config.yaml"; }
  std::string plan() const { return path_ + "/plan.json"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string log(int world_rank) const;
  std::string collective_log(int world_rank) const;
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string trace_folder() const { return path_ + "/trace"; }
  std::string trace(int world_rank) const;
  std::string merged_trace() const { return trace_folder() + "/all.json.gz"; }

  // Called by one rank, before any other touches the directory: creates it and makes it this run's. DeviceError where it cannot be made;
  // ConfigError where another run owns it, or where it holds something but no run: it is somebody else's.
  void acquire(const std::string& host, std::optional<RunLock>& lock) const;
  // Then, by the same rank: whether an earlier start left anything.
  bool holds_an_earlier_start() const { return !files_of_an_earlier_run().empty(); }
  // Then, by the same rank: moves what an earlier start left to attempts/K/ (nothing is overwritten, and files that are no run's stay where they
  // are), and leaves the nonce. Where the run goes on from a checkpoint of its own, checkpoints stay, and metrics.jsonl stays up to that point,
  // with a copy of the whole in attempts/K/. Returns K, 0 where there was nothing. DeviceError where the directory cannot be written.
  int prepare(std::uint64_t nonce, const std::optional<Progress>& resumed = {}) const;
  // Called by every rank after prepare(): the directory must be visible here, and created under the same name by rank 0 (a nonce file is compared).
  void check_visible(std::uint64_t nonce) const;
  // Called by that rank once config.yaml and plan.json are there.
  void remove_nonce() const;

 private:
  // What prepare() would move; throws as acquire().
  std::vector<std::filesystem::path> files_of_an_earlier_run() const;
  std::string attempt(int number) const;

  std::string path_;
};

// Writes a whole file through a temporary name. DeviceError with the path and the reason.
void write_file(const std::string& path, const std::string& text);

}  // namespace tessera
