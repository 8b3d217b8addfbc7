// Who a call is: everything its members must agree on, as plain bytes that fit into shared memory, a message and a log.
//
// A communicator matches calls by order alone. Comparing identities is what tells a swapped pair from the right one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace tessera {

enum class ReduceOp : std::uint8_t { kSum, kMin, kMax };
enum class CollectiveOp : std::uint8_t { kAllGather, kReduceScatter, kAllReduce, kBroadcast, kSend, kRecv, kBarrier };
std::string_view name_of(ReduceOp op);
std::string_view name_of(CollectiveOp op);
// send and recv, which pair one sender with one receiver.
bool is_message(CollectiveOp op);

// One call of one member. Equal on all members of a group where the program is right; of a send and its receive too.
// All bytes are defined, so it can be hashed, copied and written as it is (little-endian machines).
struct CollectiveIdentity {
  // Per communicator, from 0; of send and recv: per (communicator, sender, receiver), from 0.
  std::uint64_t sequence = 0;
  // Elements: the shard of an all_gather, the whole input of a reduce_scatter.
  std::uint64_t num_elements = 0;
  // A hash of how a reduce_scatter cuts its input, or an all_reduce of several buffers (extend_layout), or of the history that a comparison is about; 0 otherwise.
  std::uint64_t layout = 0;
  std::int64_t step = 0;
  std::int32_t micro_batch = -1;  // -1: none
  std::int32_t root = -1;         // group rank: root of a broadcast, sender of send and recv; -1: none
  std::int32_t peer = -1;         // group rank: receiver of send and recv; -1: none
  CollectiveOp op = CollectiveOp::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kUInt8;
  std::uint8_t reserved = 0;
  // Zero-padded; longer names are cut and end in a hash of the whole name, so that different names stay different.
  char what[32] = {};
  char phase[16] = {};

  std::string_view what_view() const;
  std::string_view phase_view() const;
};
static_assert(sizeof(CollectiveIdentity) == 96);

// 64 bits over the group's hash (collective_group_hash) and the identity; send and recv of one message agree. Never 0.
std::uint64_t fingerprint_of(std::uint64_t group_hash, const CollectiveIdentity& identity);
// The rolling hash of a communicator's calls: equal chains mean equal histories. Starts at 0.
std::uint64_t extend_chain(std::uint64_t chain, std::uint64_t fingerprint);
// Of the name ("dp:0"), the channel (the stream's name, since a group may have several communicators) and the size.
std::uint64_t collective_group_hash(std::string_view group, std::string_view channel, int size);

// Adds a part of a reduce_scatter, by its counts per rank, to the hash of the parts before it (0: none).
std::uint64_t extend_layout(std::uint64_t layout, std::span<const std::uint64_t> counts);
// Whether two members make the same call: all fields, of a send and its receive all but the op.
bool calls_match(const CollectiveIdentity& a, const CollectiveIdentity& b);

// Cuts and pads a name into a fixed field (see CollectiveIdentity::what).
void set_name(char* field, std::size_t bytes, std::string_view name);

// "all_gather block.3 forward, step 7, micro 0, 1024 fp32": one call in a message. world_ranks: of the members, so that roots and peers are named
// as the user knows them; where empty they are group ranks.
std::string describe(const CollectiveIdentity& identity, std::span<const int> world_ranks = {});
// The fields in which two calls differ, each "name value" of `mine`: {"op all_gather", "count 1024", "tag block.3 forward"}.
// Empty where they match. Sequence numbers are not compared: that is where the caller looked.
std::vector<std::string> differing_fields(const CollectiveIdentity& mine, const CollectiveIdentity& other,
                                          std::span<const int> world_ranks = {});

// What Communicator::compare_history compares, as a call of its own.
inline constexpr std::string_view kHistoryName = "history";

// One call as its members made it: "rank 0: all_gather block.2 forward, step 7, 1024 fp32; rank 1: tag block.3 forward". Who says the same is
// one side, the larger first, the lower rank first where they are equal; every other side names the fields in which it differs, and its tag.
// sides: world ranks beside their identities; world_ranks: of the members.
std::string describe_sides(std::span<const int> sides, std::span<const CollectiveIdentity> identities,
                           std::span<const int> world_ranks);

}  // namespace tessera
