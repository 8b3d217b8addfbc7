#include "checkpoint/verify.h"

#include <fmt/format.h>

#include "checkpoint/logical_digest.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

// Runs `look`, and notes the error it ends with.
template <typename Look>
void note_damage(VerifyReport& report, Look look) {
  try {
    look();
  } catch (const CheckpointError& error) {
    report.damage.emplace_back(error.what());
  }
}

void verify_file(FileSystem& files, const std::string& folder, const FileRecord& record, VerifyReport& report) {
  VerifiedFile file(files, folder, record);
  ++report.num_files;
  report.num_bytes += record.bytes;
  for (std::uint64_t block = 0; block < record.block_hashes.size(); ++block) {
    ++report.num_blocks;
    if (std::string problem = file.damage(block); !problem.empty()) report.damage.push_back(std::move(problem));
  }
}

// What the hashes of files cannot show: that the manifest says of the data what the data is.
void verify_digests(FileSystem& files, const std::string& folder, VerifyReport& report) {
  CheckpointReader reader = CheckpointReader::open(files, folder);
  std::vector<TensorRecord> tensors = reader.manifest().tensors;
  std::vector<float> values(static_cast<std::size_t>(kLogicalBlockElements));
  for (TensorRecord& tensor : tensors) {
    const std::int64_t size = tensor.num_elements();
    for (std::int64_t offset = 0; offset < size; offset += kLogicalBlockElements) {
      const std::int64_t count = std::min(kLogicalBlockElements, size - offset);
      reader.read({{.name = tensor.name, .offset = offset, .count = count, .data = values.data()}});
      const std::uint64_t digest = partial_digests(tensor.name, offset, count, values.data())[0];
      std::uint64_t& said = tensor.block_digests[static_cast<std::size_t>(offset / kLogicalBlockElements)];
      if (digest != said)
        report.damage.push_back(fmt::format("{}: elements from {} of {} on have digest {}, the manifest says {}",
                                            folder, offset, tensor.name, hex64(digest), hex64(said)));
      said = digest;
    }
  }
  report.root_hash = root_hash(tensors);
}

}  // namespace

VerifyReport verify_checkpoint(FileSystem& files, const std::string& folder) {
  VerifyReport report;
  Manifest manifest;
  note_damage(report, [&] { manifest = read_manifest(files, folder); });
  for (const FileRecord& record : manifest.files) {
    note_damage(report, [&] {
      verify_file(files, folder, record, report);
      read_safetensors_header(files, fmt::format("{}/{}", folder, record.name));
    });
  }
  if (report.ok()) note_damage(report, [&] { verify_digests(files, folder, report); });
  return report;
}

}  // namespace tessera
