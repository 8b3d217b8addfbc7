// What GptRunner takes from the allocator, from the sizes alone and to the byte (a test compares). Each function follows the code of its
// segment call by call: whoever moves an allocation there moves it here.
#pragma once

#include <cstdint>

#include "models/gpt_shape.h"
#include "runtime/program/parameter_spec.h"

namespace tessera {

// Rope's tables.
std::int64_t constant_bytes(const GptShape& shape);

// Set the memory of every instruction that a segment has; num_threads: of the device.
void set_embedding_memory(const GptShape& shape, SegmentSpec& segment);
void set_block_memory(const GptShape& shape, int num_threads, SegmentSpec& segment);
void set_head_memory(const GptShape& shape, SegmentSpec& segment);

}  // namespace tessera
