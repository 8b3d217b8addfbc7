// Bytes of a segment, from the sizes alone; exactly what GptRunner takes from the allocator (a test compares).
#pragma once

#include <cstdint>

#include "models/gpt_shape.h"

namespace tessera {

struct SegmentBytes {
  std::int64_t saved = 0;
  std::int64_t forward_workspace = 0;
  std::int64_t backward_workspace = 0;
};

SegmentBytes embedding_bytes(const GptShape& shape);
SegmentBytes block_bytes(const GptShape& shape, int num_threads);
SegmentBytes head_bytes(const GptShape& shape);

}  // namespace tessera
