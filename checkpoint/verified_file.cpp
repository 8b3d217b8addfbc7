#include "checkpoint/verified_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/block_hash.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

// A block, and a range that needs bytes of it.
struct Use {
  std::uint64_t block = 0;
  const VerifiedFile::Range* range = nullptr;
};

std::vector<Use> uses_of(const std::vector<VerifiedFile::Range>& ranges) {
  std::vector<Use> uses;
  for (const VerifiedFile::Range& range : ranges) {
    if (range.into.empty()) continue;
    const std::uint64_t last = (range.offset + range.into.size() - 1) / kBlockBytes;
    for (std::uint64_t block = range.offset / kBlockBytes; block <= last; ++block) uses.push_back({block, &range});
  }
  std::ranges::sort(uses, {}, &Use::block);
  return uses;
}

// Copies what a range wants of the block whose bytes begin at `begin` of the file.
void copy_part(std::span<const std::byte> block, std::uint64_t begin, const VerifiedFile::Range& range) {
  const std::uint64_t from = std::max(begin, range.offset);
  const std::uint64_t to = std::min(begin + block.size(), range.offset + range.into.size());
  std::memcpy(range.into.data() + (from - range.offset), block.data() + (from - begin), to - from);
}

bool covers(const VerifiedFile::Range& range, std::uint64_t begin, std::uint64_t size) {
  return range.offset <= begin && range.offset + range.into.size() >= begin + size;
}

}  // namespace

VerifiedFile::VerifiedFile(FileSystem& files, const std::string& folder, FileRecord record)
    : path_(fmt::format("{}/{}", folder, record.name)),
      record_(std::move(record)),
      file_(files.open(path_)),
      touched_(record_.block_hashes.size(), false) {
  if (file_->size() != record_.bytes)
    throw CheckpointError(
        fmt::format("{}: damaged: {} bytes, the manifest says {}", path_, file_->size(), record_.bytes));
}

void VerifiedFile::read(const std::vector<Range>& ranges) {
  const std::vector<Use> uses = uses_of(ranges);
  for (auto use = uses.begin(); use != uses.end();) {
    const auto next = std::find_if(use, uses.end(), [&](const Use& other) { return other.block != use->block; });
    const std::uint64_t begin = use->block * kBlockBytes;
    const std::uint64_t size = block_size(record_.bytes, use->block);
    if (next - use == 1 && covers(*use->range, begin, size)) {
      read_block(use->block, use->range->into.subspan(begin - use->range->offset, size));
    } else {
      const std::span<std::byte> block = scratch(use->block);
      read_block(use->block, block);
      for (; use != next; ++use) copy_part(block, begin, *use->range);
    }
    use = next;
  }
}

std::string VerifiedFile::damage(std::uint64_t block) {
  const std::span<std::byte> bytes = scratch(block);
  file_->read_at(block * kBlockBytes, bytes);
  return difference(block, bytes);
}

std::string VerifiedFile::difference(std::uint64_t block, std::span<const std::byte> bytes) const {
  const std::uint64_t found = block_hash(bytes), expected = record_.block_hashes[block];
  if (found == expected) return "";
  return fmt::format("{}: damaged in block {} of {} (from byte {} on): its hash is {}, the manifest says {}", path_,
                     block, record_.block_hashes.size(), block * kBlockBytes, hex64(found), hex64(expected));
}

void VerifiedFile::read_block(std::uint64_t block, std::span<std::byte> into) {
  file_->read_at(block * kBlockBytes, into);
  if (const std::string problem = difference(block, into); !problem.empty()) throw CheckpointError(problem);
  touched_[block] = true;
}

std::span<std::byte> VerifiedFile::scratch(std::uint64_t block) {
  scratch_.resize(kBlockBytes);
  return std::span(scratch_).first(block_size(record_.bytes, block));
}

}  // namespace tessera
