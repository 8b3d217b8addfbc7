#include "tests/support/checkpoint/synthetic_state.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/base/hash.h"
#include "tests/support/checkpoint/thread_ranks.h"

namespace tessera::test {

float synthetic_value(std::int64_t step, const std::string& tensor, std::int64_t index) {
  const std::uint64_t bits =
      mix64(hash_string(tensor, static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(index));
  return static_cast<float>(bits >> 40) * 0x1p-24F - 0.5F;
}

SyntheticState::SyntheticState(const ModelSpec& model, const std::string& wrap, int num_shards, int shard)
    : model_(model), shard_(shard) {
  for (const UnitSpec& unit : make_units(model, wrap)) {
    const ShardLayout layout = make_shard_layout(model, unit, num_shards);
    for (const char* suffix : {"", ".m", ".v"})
      parts_.push_back({layout, suffix, std::vector<float>(static_cast<std::size_t>(layout.shard_size), 0.0F)});
  }
}

void SyntheticState::fill(std::int64_t step) {
  for (const TargetSlice& slice : targets())
    for (std::int64_t i = 0; i < slice.count; ++i) slice.data[i] = synthetic_value(step, slice.name, slice.offset + i);
}

void SyntheticState::clear() {
  for (Part& part : parts_) std::ranges::fill(part.values, 0.0F);
}

std::int64_t SyntheticState::num_wrong(std::int64_t step) const {
  std::int64_t wrong = 0;
  for (const SourceSlice& slice : sources())
    for (std::int64_t i = 0; i < slice.count; ++i)
      wrong += slice.data[i] != synthetic_value(step, slice.name, slice.offset + i) ? 1 : 0;
  return wrong;
}

std::vector<SourceSlice> SyntheticState::sources() const {
  std::vector<SourceSlice> slices;
  for (const Part& part : parts_)
    std::ranges::move(source_slices(model_, part.layout, shard_, part.suffix, part.values), std::back_inserter(slices));
  return slices;
}

std::vector<TargetSlice> SyntheticState::targets() {
  std::vector<TargetSlice> slices;
  for (Part& part : parts_)
    std::ranges::move(target_slices(model_, part.layout, shard_, part.suffix, part.values), std::back_inserter(slices));
  return slices;
}

TrainingState synthetic_training(std::int64_t step) {
  return {.config = "run: {name: \"ä\"}\n",
          .mesh = {.dp = 2, .strategy = "full_shard", .wrap = "block"},
          .data = {.next_batch = step,
                   .epoch = 1,
                   .tokens_seen = step * 4096,
                   .order_digest = 0xfedcba9876543210ULL,
                   .first_batch = step / 2,
                   .first_epoch = 1,
                   .files = {{"a.bin", 4001, "llm.c u16", 0}, {"ä.bin", 17, "raw u16", 1}}},
          .schedule = {.updates = step, .decay_steps = 2000},
          .loss_scaler = {.scale = 65536, .good_steps = 7, .skipped_steps = 1},
          .rng = {.seed = 0x8000000000000001ULL},
          .numerics = {{"instruction_set", "avx512"}, {"lanes", "4"}}};
}

Fields synthetic_model_fields() {
  return {{"activation", "gelu"}, {"norm", "layernorm"}};
}

SavedCheckpoint save(FileSystem& files, RankExchange& ranks, const CheckpointWriter::Options& options,
                     std::int64_t step, const std::vector<SourceSlice>& slices) {
  Staging staging;
  CheckpointWriter writer(files, ranks, options, staging.allocate(staging_bytes(slices)));
  writer.begin(
      {.step = step, .slices = slices, .model = synthetic_model_fields(), .training = synthetic_training(step)});
  return writer.wait();
}

SavedCheckpoint save_layout(FileSystem& files, const std::string& directory, const ModelSpec& model,
                            const std::string& wrap, int num_shards, int num_replicas, std::int64_t step) {
  SavedCheckpoint result;
  const auto messages = run_ranks(num_shards * num_replicas, [&](ThreadRanks& threads, int rank) {
    ThreadExchange exchange(threads, rank);
    SyntheticState state(model, wrap, num_shards, rank % num_shards);
    state.fill(step);
    const std::vector<SourceSlice> slices = rank < num_shards ? state.sources() : std::vector<SourceSlice>{};
    const SavedCheckpoint saved = save(files, exchange, {.directory = directory, .run_id = 7}, step, slices);
    if (rank == 0) result = saved;
  });
  for (const std::string& message : messages)
    if (!message.empty()) throw std::runtime_error(message);
  return result;
}

}  // namespace tessera::test
