// Loads a checkpoint into any layout: a rank names the slices it wants and reads the blocks that hold them, each once and checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_exchange.h"
#include "checkpoint/tensor_slice.h"
#include "checkpoint/verified_file.h"

namespace tessera {

class CheckpointReader {
 public:
  // Reads and validates the manifest, opens the shards and compares their sizes. CheckpointError naming the file and what is wrong. files must
  // outlive the reader.
  static CheckpointReader open(FileSystem& files, const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  // Fills the targets. CheckpointError for a tensor that is not there, elements past its end, or a damaged block; targets are then undefined.
  void read(const std::vector<TargetSlice>& targets);
  // Collective, after read() on all ranks: the blocks that no rank has read are checked, each by one.
  void verify_rest(RankExchange& ranks);
  // Collective: read() and verify_rest(), succeeding on all ranks or throwing the same CheckpointError on all.
  void load(RankExchange& ranks, const std::vector<TargetSlice>& targets);

  std::vector<VerifiedFile>& files() { return files_; }

 private:
  CheckpointReader(std::string folder, Manifest manifest)
      : folder_(std::move(folder)), manifest_(std::move(manifest)) {}

  std::string folder_;
  Manifest manifest_;
  std::vector<VerifiedFile> files_;  // as in the manifest
};

}  // namespace tessera
