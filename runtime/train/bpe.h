// Byte-pair encoding of one word.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

struct BpeMerge {
  std::uint32_t left = 0, right = 0, result = 0;  // tokens
  friend bool operator==(const BpeMerge&, const BpeMerge&) = default;
};

class Bpe {
 public:
  // byte_tokens: the token of each byte value. merges: first to last; of a pair that comes twice the last counts.
  Bpe(const std::array<std::uint32_t, 256>& byte_tokens, std::span<const BpeMerge> merges);

  // Appends the word's tokens: from its bytes, the earliest merge of the list that applies is made, leftmost first, until none applies. Returns
  // how many pairs were looked up, at most three for each byte; time is n log n in the length.
  std::int64_t encode(std::string_view word, std::vector<std::uint32_t>& tokens) const;

 private:
  struct Rule {
    std::uint32_t rank = 0, result = 0;
  };
  const Rule* find(std::uint32_t left, std::uint32_t right) const;

  std::array<std::uint32_t, 256> byte_tokens_;
  std::unordered_map<std::uint64_t, Rule> rules_;  // by left << 32 | right
};

}  // namespace tessera
