// Reads parameters out of the files of a Hugging Face model, as slices of ours: a rank names the elements it wants, and those alone are read.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/huggingface_files.h"
#include "checkpoint/huggingface_mapping.h"
#include "checkpoint/tensor_slice.h"

namespace tessera {

class HuggingFaceReader {
 public:
  // Reads headers alone. CheckpointError that names, all at once, tensors that are missing, that nobody knows, of another shape than the
  // parameters' or of a dtype that is not read. files must outlive the reader.
  //
  // A head beside a tied model's table is accepted: check_tied_head() has the last word. Where a file holds the head's matrix alone, it is the table.
  static HuggingFaceReader open(FileSystem& files, const std::string& folder, HuggingFaceLayout layout,
                                const std::vector<ParameterSpec>& parameters);

  // Fills the targets, with fp32 whatever the file has. Scratch is bounded, whatever the sizes.
  void read(const std::vector<TargetSlice>& targets) const;
  // CheckpointError where the model is tied and the file holds a head of other values than the table: one of the two would be lost in silence.
  void check_tied_head() const;

 private:
  struct Source {
    HuggingFacePlace place;
    HuggingFaceTensor tensor;
    FloatFormat format = FloatFormat::kF32;
  };

  explicit HuggingFaceReader(std::string folder) : folder_(std::move(folder)) {}
  const Source& find(const std::string& parameter) const;
  // Elements of the flattened tensor, from `first` on, as they lie there.
  void read_run(const Source& source, std::int64_t first, std::span<float> out) const;
  void read_transposed(const Source& source, const TargetSlice& target) const;

  std::string folder_;
  std::vector<std::unique_ptr<ReadableFile>> files_;
  std::vector<Source> sources_;        // ascending parameters
  std::optional<Source> second_head_;  // beside the table of a tied model
};

}  // namespace tessera
