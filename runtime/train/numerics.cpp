#include "runtime/train/numerics.h"

#include <fmt/format.h>

#include <vector>

#include "runtime/base/hash.h"
#include "runtime/ops/isa.h"
#include "runtime/ops/kernel_digest.h"

namespace tessera {

std::string NumericsRecord::json() const {
  return fmt::format(
      R"({{"instruction_set":"{}","device":"{}","matmul_library":"{}","lanes":{},"tp_splits":{},"precision":"{}","micro_batch_size":{},"reduce":"{}","kernel_digest":"{}"}})",
      instruction_set, device, matmul_library, lanes, tp_splits, precision, micro_batch_size, reduce,
      hex64(kernel_digest));
}

std::uint64_t NumericsRecord::hash() const {
  return hash_string(json());
}

NumericsRecord make_numerics_record(const JobConfig& config, const ResolvedBatch& batch, StreamView compute) {
  NumericsRecord record;
  record.instruction_set = name_of(current_isa());
  record.device = name_of(compute.device().kind());
  record.matmul_library = matmul_library();
  record.lanes = batch.lanes;
  record.tp_splits = config.reproducibility.tp_splits;
  record.precision = config.precision.compute + "/" + config.precision.reduce;
  record.micro_batch_size = config.batch.micro_batch_size;
  record.reduce = config.fsdp.reduce;
  const ModelConfig& model = config.model;
  const std::int64_t tokens = config.batch.micro_batch_size * model.seq_len;
  const std::int64_t queries = model.num_heads * model.head_size();
  const std::int64_t keys = model.kv_heads() * model.head_size();
  const std::vector<ops::ProductShape> products = {{tokens, model.hidden_size, queries},
                                                   {tokens, model.hidden_size, keys},
                                                   {tokens, queries, model.hidden_size},
                                                   {tokens, model.hidden_size, model.feed_forward_size()},
                                                   {tokens, model.feed_forward_size(), model.hidden_size},
                                                   {tokens, model.hidden_size, model.vocab_size}};
  record.kernel_digest = ops::kernel_digest(compute, products);
  return record;
}

}  // namespace tessera
