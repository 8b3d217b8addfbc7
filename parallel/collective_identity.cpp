#include "parallel/collective_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

std::string_view view_of(const char* field, std::size_t bytes) {
  return {field, static_cast<std::size_t>(std::find(field, field + bytes, '\0') - field)};
}

bool reduces(CollectiveOp op) {
  return op == CollectiveOp::kAllReduce || op == CollectiveOp::kReduceScatter;
}

int rank_name(int member, std::span<const int> world_ranks) {
  return member >= 0 && member < static_cast<int>(world_ranks.size()) ? world_ranks[static_cast<std::size_t>(member)]
                                                                      : member;
}

std::string rank_names(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
  }
  throw InternalError("collective: unknown reduce op");
}

std::string_view name_of(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllGather: return "all_gather";
    case CollectiveOp::kReduceScatter: return "reduce_scatter";
    case CollectiveOp::kAllReduce: return "all_reduce";
    case CollectiveOp::kBroadcast: return "broadcast";
    case CollectiveOp::kSend: return "send";
    case CollectiveOp::kRecv: return "recv";
    case CollectiveOp::kBarrier: return "barrier";
  }
  throw InternalError("collective: unknown collective op");
}

bool is_message(CollectiveOp op) {
  return op == CollectiveOp::kSend || op == CollectiveOp::kRecv;
}

std::string_view CollectiveIdentity::what_view() const {
  return view_of(what, sizeof(what));
}

std::string_view CollectiveIdentity::phase_view() const {
  return view_of(phase, sizeof(phase));
}

void set_name(char* field, std::size_t bytes, std::string_view name) {
  std::memset(field, 0, bytes);
  if (name.size() <= bytes) {
    std::memcpy(field, name.data(), name.size());
    return;
  }
  constexpr std::size_t kDigits = 8;
  const std::string digits = hex64(hash_string(name));
  std::memcpy(field, name.data(), bytes - kDigits);
  std::memcpy(field + bytes - kDigits, digits.data(), kDigits);
}

std::uint64_t collective_group_hash(std::string_view group, std::string_view channel, int size) {
  return hash_string(fmt::format("{}/{}/{}", group, channel, size));
}

std::uint64_t fingerprint_of(std::uint64_t group_hash, const CollectiveIdentity& identity) {
  CollectiveIdentity normal = identity;
  if (normal.op == CollectiveOp::kRecv) normal.op = CollectiveOp::kSend;
  const std::uint64_t hash = hash_bytes(&normal, sizeof(normal), group_hash);
  return hash == 0 ? 1 : hash;
}

std::uint64_t extend_layout(std::uint64_t layout, std::span<const std::uint64_t> counts) {
  return hash_bytes(counts.data(), counts.size_bytes(), layout + 1);
}

bool calls_match(const CollectiveIdentity& a, const CollectiveIdentity& b) {
  CollectiveIdentity normal = b;
  if (is_message(a.op) && is_message(b.op)) normal.op = a.op;
  return std::memcmp(&a, &normal, sizeof a) == 0;
}

std::uint64_t extend_chain(std::uint64_t chain, std::uint64_t fingerprint) {
  return mix64(chain + 0x9e3779b97f4a7c15ULL + mix64(fingerprint));
}

std::string describe(const CollectiveIdentity& identity, std::span<const int> world_ranks) {
  std::string text = fmt::format("{} {} {}, step {}", name_of(identity.op), identity.what_view(), identity.phase_view(),
                                 identity.step);
  if (identity.micro_batch >= 0) text += fmt::format(", micro {}", identity.micro_batch);
  if (is_message(identity.op))
    text += fmt::format(", {} → {}", rank_name(identity.root, world_ranks), rank_name(identity.peer, world_ranks));
  if (identity.op == CollectiveOp::kBroadcast) text += fmt::format(", root {}", rank_name(identity.root, world_ranks));
  if (identity.op == CollectiveOp::kBarrier) return text;
  text += fmt::format(", {} {}", identity.num_elements, name_of(identity.dtype));
  if (reduces(identity.op)) text += fmt::format(" {}", name_of(identity.reduce));
  return text;
}

std::vector<std::string> differing_fields(const CollectiveIdentity& mine, const CollectiveIdentity& other,
                                          std::span<const int> world_ranks) {
  std::vector<std::string> fields;
  const bool messages = is_message(mine.op) && is_message(other.op);
  if (mine.op != other.op && !messages) fields.push_back(fmt::format("op {}", name_of(mine.op)));
  if (mine.reduce != other.reduce) fields.push_back(fmt::format("reduce op {}", name_of(mine.reduce)));
  if (mine.dtype != other.dtype) fields.push_back(fmt::format("dtype {}", name_of(mine.dtype)));
  if (mine.num_elements != other.num_elements) {
    fields.push_back(fmt::format("count {}", mine.num_elements));
  } else if (mine.layout != other.layout) {
    fields.push_back(fmt::format("{} {}", mine.what_view() == kHistoryName ? "history" : "layout", hex64(mine.layout)));
  }
  if (mine.root != other.root)
    fields.push_back(fmt::format("{} {}", messages ? "sender" : "root", rank_name(mine.root, world_ranks)));
  if (mine.peer != other.peer) fields.push_back(fmt::format("receiver {}", rank_name(mine.peer, world_ranks)));
  if (mine.what_view() != other.what_view() || mine.phase_view() != other.phase_view()) {
    fields.push_back(fmt::format("tag {} {}", mine.what_view(), mine.phase_view()));
  }
  if (mine.micro_batch != other.micro_batch) fields.push_back(fmt::format("micro {}", mine.micro_batch));
  if (mine.step != other.step) fields.push_back(fmt::format("step {}", mine.step));
  return fields;
}

std::string describe_sides(std::span<const int> side_ranks, std::span<const CollectiveIdentity> identities,
                           std::span<const int> world_ranks) {
  struct Side {
    std::vector<int> ranks;
    const CollectiveIdentity* identity;
  };
  std::vector<Side> sides;
  for (std::size_t i = 0; i < identities.size(); ++i) {
    const auto same = std::find_if(sides.begin(), sides.end(),
                                   [&](const Side& side) { return calls_match(*side.identity, identities[i]); });
    if (same == sides.end()) {
      sides.push_back({{side_ranks[i]}, &identities[i]});
    } else {
      same->ranks.push_back(side_ranks[i]);
    }
  }
  for (Side& side : sides) std::sort(side.ranks.begin(), side.ranks.end());
  std::sort(sides.begin(), sides.end(), [](const Side& a, const Side& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size() : a.ranks < b.ranks;
  });
  std::string text;
  for (const Side& side : sides) {
    if (&side == &sides.front()) {
      text = fmt::format("{}: {}", rank_names(side.ranks), describe(*side.identity, world_ranks));
      continue;
    }
    std::vector<std::string> fields = differing_fields(*side.identity, *sides.front().identity, world_ranks);
    if (side.identity->sequence != sides.front().identity->sequence) {
      fields.push_back(fmt::format("call {}", side.identity->sequence));
    }
    const std::string tag = fmt::format("tag {} {}", side.identity->what_view(), side.identity->phase_view());
    if (std::find(fields.begin(), fields.end(), tag) == fields.end()) fields.push_back(tag);
    text += fmt::format("; {}: {}", rank_names(side.ranks), fmt::join(fields, ", "));
  }
  return text;
}

}  // namespace tessera
