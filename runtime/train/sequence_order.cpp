#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/rng.h"
#include "runtime/train/token_data.h"

namespace tessera {
namespace {

// A keyed permutation of 0 … n-1 in constant memory: a balanced Feistel network (Luby and Rackoff 1988) over the
// smallest even number of bits that holds n, repeated until the value falls below n again (cycle walking, Black and
// Rogaway 2002). The walk ends within four rounds on average, because the network's domain is less than four times n.
std::uint64_t permute(std::uint64_t value, std::uint64_t n, std::uint64_t key) {
  constexpr int num_rounds = 6;
  int half_bits = 1;
  while ((std::uint64_t{1} << (2 * half_bits)) < n) ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = value >> half_bits, right = value & mask;
    for (int round = 0; round < num_rounds; ++round) {
      // Upper bits of the mix: half_bits is at most 31, so 32 of them are enough.
      const std::uint64_t noise = mix64(mix64(key + static_cast<std::uint64_t>(round)) ^ right) >> 32;
      const std::uint64_t next = left ^ (noise & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= n);
  return value;
}

}  // namespace

SequenceOrder::SequenceOrder(std::int64_t num_sequences, std::int64_t global_batch_size, std::uint64_t seed,
                             bool shuffle, std::int64_t first_batch, std::int64_t first_epoch)
    : num_sequences_(num_sequences),
      global_batch_size_(global_batch_size),
      seed_(seed),
      shuffle_(shuffle),
      first_batch_(first_batch),
      first_epoch_(first_epoch) {
  require(global_batch_size > 0, "SequenceOrder: global_batch_size is positive");
  if (batches_per_epoch() == 0) {
    throw DataError(fmt::format("data: {} sequences per epoch, fewer than batch.global_batch_size {}", num_sequences,
                                global_batch_size),
                    "more data, a smaller batch, or a shorter model.seq_len");
  }
}

std::int64_t SequenceOrder::batches_per_epoch() const {
  return num_sequences_ / global_batch_size_;
}
std::int64_t SequenceOrder::dropped_per_epoch() const {
  return num_sequences_ % global_batch_size_;
}
std::int64_t SequenceOrder::epoch_of(std::int64_t batch) const {
  return first_epoch_ + (batch - first_batch_) / batches_per_epoch();
}

std::int64_t SequenceOrder::window(std::int64_t batch, std::int64_t slot) const {
  require(batch >= first_batch_ && 0 <= slot && slot < global_batch_size_,
          "SequenceOrder::window: batch and slot in range");
  const std::int64_t index = (batch - first_batch_) % batches_per_epoch() * global_batch_size_ + slot;
  if (!shuffle_) return index;
  const std::uint64_t purpose = static_cast<std::uint64_t>(RandomPurpose::kShuffle) << 56;
  const std::uint64_t key = mix64(mix64(seed_ + purpose) + static_cast<std::uint64_t>(epoch_of(batch)) + 1);
  return static_cast<std::int64_t>(
      permute(static_cast<std::uint64_t>(index), static_cast<std::uint64_t>(num_sequences_), key));
}

}  // namespace tessera
