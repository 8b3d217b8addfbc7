#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkpoint/block_hash.h"
#include "checkpoint/logical_digest.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::uint64_t kElementBytes = 4;
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{512} << 20;

class Validator {
 public:
  Validator(const Manifest& manifest, const std::string& path) : manifest_(manifest), path_(path) {}

  void run() const {
    std::set<std::string> names;
    for (const FileRecord& file : manifest_.files) {
      check_file(file);
      check(names.insert(file.name).second, "file {} stands twice", file.name);
    }
    for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
      check_tensor(manifest_.tensors[i]);
      check(i == 0 || manifest_.tensors[i - 1].name < manifest_.tensors[i].name,
            "tensor {} is not after the one before it", manifest_.tensors[i].name);
    }
    check(root_hash(manifest_.tensors) == manifest_.root_hash, "root_hash is not that of the block digests");
    check(state_hash(manifest_.tensors) == manifest_.state_hash, "state_hash is not that of the block digests");
  }

 private:
  template <typename... Arguments>
  void check(bool holds, fmt::format_string<Arguments...> rule, Arguments&&... arguments) const {
    if (holds) return;
    throw CheckpointError(fmt::format("{}: {}", path_, fmt::format(rule, std::forward<Arguments>(arguments)...)));
  }

  void check_file(const FileRecord& file) const {
    // A name that led out of the folder would let a manifest make us read any file.
    check(!file.name.empty() && file.name != "." && file.name != ".." && file.name.find('/') == std::string::npos,
          "'{}' is no file name", file.name);
    check(file.block_hashes.size() == num_blocks(file.bytes), "file {} of {} bytes has {} block hashes, {} expected",
          file.name, file.bytes, file.block_hashes.size(), num_blocks(file.bytes));
  }

  void check_tensor(const TensorRecord& tensor) const {
    check(tensor.dtype == "F32", "tensor {} has dtype {}; version 1 has F32 only", tensor.name, tensor.dtype);
    std::int64_t count = 0;
    check(element_count(tensor.shape, count), "tensor {}: {} is no shape", tensor.name, str(tensor.shape));
    std::int64_t next = 0;
    for (const StoredSlice& slice : tensor.slices) {
      check(slice.offset == next && slice.count > 0 && slice.count <= count - next,
            "tensor {}: elements {} to {} of {} expected, a slice has {} from {} on", tensor.name, next, count, count,
            slice.count, slice.offset);
      next += slice.count;
      check_place(tensor, slice);
    }
    check(next == count, "tensor {}: elements from {} of {} on are nowhere", tensor.name, next, count);
    check(static_cast<std::int64_t>(tensor.block_digests.size()) == num_logical_blocks(count),
          "tensor {} has {} block digests, {} expected", tensor.name, tensor.block_digests.size(),
          num_logical_blocks(count));
  }

  void check_place(const TensorRecord& tensor, const StoredSlice& slice) const {
    check(slice.file >= 0 && static_cast<std::size_t>(slice.file) < manifest_.files.size(),
          "tensor {}: there is no file {}", tensor.name, slice.file);
    const FileRecord& file = manifest_.files[static_cast<std::size_t>(slice.file)];
    check(slice.file_offset <= file.bytes &&
              static_cast<std::uint64_t>(slice.count) <= (file.bytes - slice.file_offset) / kElementBytes,
          "tensor {}: {} elements from byte {} on do not fit {} of {} bytes", tensor.name, slice.count,
          slice.file_offset, file.name, file.bytes);
  }

  const Manifest& manifest_;
  const std::string& path_;
};

}  // namespace

std::int64_t TensorRecord::num_elements() const {
  std::int64_t count = 0;
  require(element_count(shape, count), "a validated shape");
  return count;
}

const TensorRecord* Manifest::find(const std::string& name) const {
  const auto tensor = std::ranges::lower_bound(tensors, name, {}, &TensorRecord::name);
  return tensor == tensors.end() || tensor->name != name ? nullptr : &*tensor;
}

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const FileRecord& file : files) sum += file.bytes;
  return sum;
}

void validate(const Manifest& manifest, const std::string& path) {
  Validator(manifest, path).run();
}

Manifest read_manifest(FileSystem& files, const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kManifestName);
  return decode_manifest(read_small_file(files, path, kMaxManifestBytes), path);
}

}  // namespace tessera
