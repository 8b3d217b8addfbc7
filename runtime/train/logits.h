// What a checkpoint's model says of a text, token by token: for comparisons with other programs (docs/developing.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"

namespace tessera {

// Logits [tokens, vocab_size] of the checkpoint in `folder` (resolve_checkpoint), on this process alone. ConfigError for a token that is not below
// vocab_size, or more tokens than seq_len.
std::vector<float> checkpoint_logits(FileSystem& files, const std::string& folder,
                                     std::span<const std::int32_t> tokens);

}  // namespace tessera
