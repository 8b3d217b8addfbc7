#include "checkpoint/hash_list.h"

#include <charconv>

#include "runtime/base/hash.h"

namespace tessera {
namespace {

constexpr std::size_t kDigits = 16;

}  // namespace

std::string encode_hashes(const std::vector<std::uint64_t>& hashes) {
  std::string text;
  text.reserve(hashes.size() * kDigits);
  for (const std::uint64_t hash : hashes) text += hex64(hash);
  return text;
}

bool decode_hashes(std::string_view text, std::vector<std::uint64_t>& hashes) {
  if (text.size() % kDigits != 0) return false;
  hashes.resize(text.size() / kDigits);
  for (std::uint64_t& hash : hashes) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + kDigits, hash, 16);
    if (error != std::errc() || end != text.data() + kDigits) return false;
    text.remove_prefix(kDigits);
  }
  return true;
}

}  // namespace tessera
