// The fixed parts of a manifest's text, which its writer and its reader share (docs/checkpoint-format.md, "manifest.json").
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

// The first line: the hash of all bytes after it, between these.
inline constexpr std::string_view kHashLineBegin = "{\"manifest_hash\": \"", kHashLineEnd = "\",\n";
inline constexpr std::size_t kHashDigits = 16;
inline constexpr std::size_t kHashLineBytes = kHashLineBegin.size() + kHashDigits + kHashLineEnd.size();

inline constexpr std::string_view kManifestFormat = "tessera-checkpoint";

}  // namespace tessera
