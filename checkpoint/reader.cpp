#include "checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/folders.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

// One character for each block of all files, '1' where it was read.
std::string encode_touched(const std::vector<VerifiedFile>& files) {
  std::string text;
  for (const VerifiedFile& file : files)
    for (const bool touched : file.touched()) text.push_back(touched ? '1' : '0');
  return text;
}

// Appends the parts of the tensor's stored slices that hold the target's elements to the ranges of their files.
void append_ranges(const TensorRecord& tensor, const TargetSlice& target,
                   std::vector<std::vector<VerifiedFile::Range>>& by_file) {
  const std::int64_t end = target.offset + target.count;
  auto slice = std::ranges::upper_bound(tensor.slices, target.offset, {}, &StoredSlice::offset);
  if (slice != tensor.slices.begin()) --slice;
  for (; slice != tensor.slices.end() && slice->offset < end; ++slice) {
    const std::int64_t from = std::max(slice->offset, target.offset);
    const std::int64_t to = std::min(slice->offset + slice->count, end);
    if (from >= to) continue;
    by_file[static_cast<std::size_t>(slice->file)].push_back(
        {.offset = slice->file_offset + static_cast<std::uint64_t>(from - slice->offset) * sizeof(float),
         .into = std::as_writable_bytes(
             std::span(target.data + (from - target.offset), static_cast<std::size_t>(to - from)))});
  }
}

}  // namespace

CheckpointReader CheckpointReader::open(FileSystem& files, const std::string& folder) {
  CheckpointReader reader(folder, read_manifest(files, folder));
  for (const FileRecord& record : reader.manifest_.files) reader.files_.emplace_back(files, folder, record);
  return reader;
}

void CheckpointReader::read(const std::vector<TargetSlice>& targets) {
  std::vector<std::vector<VerifiedFile::Range>> by_file(files_.size());
  for (const TargetSlice& target : targets) {
    const TensorRecord* tensor = manifest_.find(target.name);
    if (tensor == nullptr) throw CheckpointError(fmt::format("{}: holds no tensor {}", folder_, target.name));
    const std::int64_t size = tensor->num_elements();
    if (target.offset < 0 || target.count < 0 || target.count > size - target.offset)
      throw CheckpointError(fmt::format("{}: {} elements of {} from {} on, it has {}", folder_, target.count,
                                        target.name, target.offset, size));
    append_ranges(*tensor, target, by_file);
  }
  for (std::size_t file = 0; file < files_.size(); ++file) files_[file].read(by_file[file]);
}

void CheckpointReader::verify_rest(RankExchange& ranks) {
  const std::vector<std::string> touched = ranks.exchange(encode_touched(files_));
  agree(ranks, [&] {
    std::size_t place = 0;
    int next_rank = 0;
    for (VerifiedFile& file : files_) {
      for (std::uint64_t block = 0; block < file.touched().size(); ++block, ++place) {
        if (std::ranges::any_of(touched, [&](const std::string& of_rank) { return of_rank.at(place) == '1'; }))
          continue;
        const bool mine = next_rank == ranks.rank();
        next_rank = (next_rank + 1) % ranks.num_ranks();
        if (!mine) continue;
        if (const std::string problem = file.damage(block); !problem.empty()) throw CheckpointError(problem);
      }
    }
    return std::string();
  });
}

void CheckpointReader::load(RankExchange& ranks, const std::vector<TargetSlice>& targets) {
  agree(ranks, [&] {
    read(targets);
    return std::string();
  });
  verify_rest(ranks);
}

}  // namespace tessera
