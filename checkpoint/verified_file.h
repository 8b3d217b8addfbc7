// One file of a checkpoint, read block by block: no byte is handed on before the hash of its block was compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"

namespace tessera {

class VerifiedFile {
 public:
  struct Range {
    std::uint64_t offset = 0;  // in the file, bytes
    std::span<std::byte> into;
  };

  // CheckpointError where the file is not there or has another size than its record says.
  VerifiedFile(FileSystem& files, const std::string& folder, FileRecord record);

  const FileRecord& record() const { return record_; }
  // Fills all ranges. Each block they touch is read once, whatever they share. CheckpointError naming file and block where one is damaged; what
  // the ranges hold then is undefined.
  void read(const std::vector<Range>& ranges);
  // Whether each block has been read so far.
  const std::vector<bool>& touched() const { return touched_; }
  // "" where the block is as it was written, else what is wrong, naming file and block.
  std::string damage(std::uint64_t block);

 private:
  std::string difference(std::uint64_t block, std::span<const std::byte> bytes) const;
  void read_block(std::uint64_t block, std::span<std::byte> into);
  std::span<std::byte> scratch(std::uint64_t block);

  std::string path_;
  FileRecord record_;
  std::unique_ptr<ReadableFile> file_;
  std::vector<bool> touched_;
  std::vector<std::byte> scratch_;
};

}  // namespace tessera
