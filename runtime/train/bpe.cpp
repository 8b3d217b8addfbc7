#include "runtime/train/bpe.h"

#include <functional>
#include <limits>
#include <queue>

#include "runtime/base/error.h"

namespace tessera {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

std::uint64_t key_of(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

// A piece of the word: a list, so that a merge moves nothing.
struct Piece {
  std::uint32_t token = 0, previous = kNone, next = kNone;
};

// A merge that could be made when it was found. Of an older one that no longer can, a piece is longer by now, so its token is another: no two
// tokens have the same text.
struct Candidate {
  std::uint64_t order = 0;  // rank << 32 | position: the earliest rule, then the leftmost pair
  std::uint32_t left = 0, right = 0, result = 0;
  bool operator>(const Candidate& other) const { return order > other.order; }
};

}  // namespace

Bpe::Bpe(const std::array<std::uint32_t, 256>& byte_tokens, std::span<const BpeMerge> merges)
    : byte_tokens_(byte_tokens) {
  require(merges.size() < kNone, "Bpe: ranks fit into 32 bits");
  rules_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const BpeMerge& merge : merges) rules_[key_of(merge.left, merge.right)] = {rank++, merge.result};
}

const Bpe::Rule* Bpe::find(std::uint32_t left, std::uint32_t right) const {
  const auto found = rules_.find(key_of(left, right));
  return found == rules_.end() ? nullptr : &found->second;
}

std::int64_t Bpe::encode(std::string_view word, std::vector<std::uint32_t>& tokens) const {
  require(word.size() < kNone, "Bpe: positions fit into 32 bits");
  const auto size = static_cast<std::uint32_t>(word.size());
  std::vector<Piece> pieces(size);
  for (std::uint32_t i = 0; i < size; ++i) {
    pieces[i] = {byte_tokens_[static_cast<std::uint8_t>(word[i])], i > 0 ? i - 1 : kNone, i + 1 < size ? i + 1 : kNone};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  std::int64_t looked_up = 0;
  const auto look_at = [&](std::uint32_t at) {
    if (at == kNone || pieces[at].next == kNone) return;
    const std::uint32_t left = pieces[at].token, right = pieces[pieces[at].next].token;
    ++looked_up;
    if (const Rule* rule = find(left, right)) candidates.push({key_of(rule->rank, at), left, right, rule->result});
  };
  for (std::uint32_t i = 0; i < size; ++i) look_at(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const auto at = static_cast<std::uint32_t>(best.order);
    Piece& left = pieces[at];
    if (left.token != best.left || left.next == kNone || pieces[left.next].token != best.right) continue;
    Piece& right = pieces[left.next];
    left.token = best.result;
    left.next = right.next;
    if (left.next != kNone) pieces[left.next].previous = at;
    right.token = kNone;  // no candidate at its place applies any more
    look_at(left.previous);
    look_at(at);
  }
  for (std::uint32_t at = size > 0 ? 0 : kNone; at != kNone; at = pieces[at].next) tokens.push_back(pieces[at].token);
  return looked_up;
}

}  // namespace tessera
