// Lists of 64-bit hashes as text: 16 hex digits each, nothing between them. JSON numbers would lose bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

std::string encode_hashes(const std::vector<std::uint64_t>& hashes);
// False where the text is no such list.
bool decode_hashes(std::string_view text, std::vector<std::uint64_t>& hashes);

}  // namespace tessera
