// What a member of a group shows to the others: one block per member and group, in the member's arena.
//
// A collective call n (from 0) of a group, seen from one member:
//   1. it writes what the others must know into line n % 2 and publishes it by the line's arrival signal, n + 1;
//   2. it waits for the arrival of every other member;
//   3. it reads the others' memory: operands where they lie (direct), or copies of them in the block (eager, staged);
//   4. direct only: it raises `phase` and waits until all have, because operands may be reused when the call is done.
// Nobody arrives at call n + 1 before it has read all of call n, so nobody writes line or eager slot n % 2 (for call n
// + 2) while somebody still reads them: two of each are enough. Whoever reads a line does so before it touches the
// member's data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel/collective_identity.h"
#include "parallel/shm/arena.h"
#include "parallel/shm/signal.h"

namespace tessera::shm {

inline constexpr std::size_t kCacheLine = 64;
// Operands up to this many bytes travel as copies in the block: cheaper than a second synchronisation.
inline constexpr std::size_t kEagerBytes = std::size_t{32} << 10;
// Operands outside the arena travel in pieces of this size; two of them stay in a core's second-level cache.
inline constexpr std::size_t kStagingBytes = std::size_t{128} << 10;
// Operands of one call that can be shown by offset; calls with more are staged.
inline constexpr std::size_t kMaxOperands = 32;

// The record of one call, then its arrival.
struct alignas(kCacheLine) CallLine {
  std::uint32_t direct;       // the operands lie in the arena, at operands[n % 2]
  std::uint64_t fingerprint;  // of the call; 0: not to be compared. The whole record is calls[n % 2]
  Signal arrival;
};
static_assert(sizeof(CallLine) == kCacheLine);

struct alignas(kCacheLine) PhaseLine {
  Signal reached;
};

// From one member to one other. The sender fills line k % 2 for its k-th message and raises `posted` to k + 1; the
// receiver answers in its own block, by `taken`, when it has read the message.
struct alignas(kCacheLine) Mailbox {
  std::uint64_t offset[2];  // in the sender's file
  std::uint32_t direct[2];  // the whole operand lies there; otherwise pieces of kStagingBytes follow each other
  Signal posted;
  std::uint64_t fingerprint[2];
  CollectiveIdentity calls[2];
};
static_assert(sizeof(Mailbox) == 4 * kCacheLine);
struct alignas(kCacheLine) Receipt {
  Signal taken;
};

struct BlockHead {
  CallLine lines[2];
  PhaseLine phase;
  alignas(kCacheLine) CollectiveIdentity calls[2];  // read where fingerprints differ
  alignas(kCacheLine) std::uint64_t operands[2][kMaxOperands];
  alignas(kCacheLine) std::byte eager[2][kEagerBytes];
  alignas(kCacheLine) std::byte staging[2][kStagingBytes];
  // Of sends alone: a collective ends before its last pieces are read by all, and a send waits for its receiver only.
  alignas(kCacheLine) std::byte send_staging[2][kStagingBytes];
};

// A block and the mailboxes and receipts behind it, as this process maps it.
class Block {
 public:
  Block() = default;
  Block(std::byte* arena, std::size_t offset, int group_size)
      : arena_(arena), head_(reinterpret_cast<BlockHead*>(arena + offset)), group_size_(group_size) {}

  // Bytes of one member's block; a fresh arena is zero, and so is the state before the first call.
  static std::size_t size_bytes(int group_size) {
    return sizeof(BlockHead) + static_cast<std::size_t>(group_size) * (sizeof(Mailbox) + sizeof(Receipt));
  }

  BlockHead& head() const { return *head_; }
  // To the given member of the group.
  Mailbox& mailbox(int receiver) const { return reinterpret_cast<Mailbox*>(head_ + 1)[receiver]; }
  // For what the given member sent.
  Receipt& receipt(int sender) const { return reinterpret_cast<Receipt*>(&mailbox(group_size_))[sender]; }
  // Memory of this member by its offset.
  const std::byte* at(std::uint64_t offset) const { return arena_ + offset; }
  std::uint64_t offset_of(const void* data) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(data) - arena_);
  }

 private:
  std::byte* arena_ = nullptr;
  BlockHead* head_ = nullptr;
  int group_size_ = 0;
};

}  // namespace tessera::shm
