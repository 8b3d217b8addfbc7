// Telling what a file is from its first bytes, so that a wrong file is refused by its name instead of trained on as
// noise.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// The name of a known format that is not token data ("gzip", "NumPy .npy", "Megatron index (.idx)" …), from the first
// bytes of a file (512 suffice). nullopt where no signature matches.
std::optional<std::string_view> foreign_format(std::span<const std::byte> head);

// True where the bytes read as text: UTF-8 or an 8-bit encoding without control characters other than white space.
// Tokens below 2048 of any 16 or 32-bit format hold a control byte in their upper half, so token data is told apart
// within a few tokens.
bool looks_like_text(std::span<const std::byte> bytes);

// True where `bytes` is well-formed UTF-8 (no overlong forms, surrogates or values above U+10FFFF). A sequence cut off
// by the end counts as well-formed where may_be_cut is set.
bool is_utf8(std::string_view bytes, bool may_be_cut = false);

// Offset of the first byte that is not part of well-formed UTF-8; bytes.size() where there is none.
std::size_t utf8_prefix(std::string_view bytes);

// Length (1 to 4) of the well-formed UTF-8 sequence at the start of bytes; 0 where there is none.
std::size_t utf8_sequence(std::string_view bytes);

}  // namespace tessera
