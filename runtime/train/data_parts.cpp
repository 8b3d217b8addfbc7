#include "runtime/train/data_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/hash.h"

namespace tessera {
namespace {

struct Matched {
  std::vector<std::size_t> old;       // indices into the files of now
  std::vector<std::string> appended;  // names of the others
  std::vector<std::string> missing;   // what is not as it was
};

std::string str(const DataFile& file) {
  return fmt::format("{} tokens ({})", file.tokens, file.format);
}

// Why a file is not found where it should be.
std::string problem_of(const DataFile& saved, const std::vector<DataFile>& now) {
  const auto same_name = std::ranges::find(now, saved.name, &DataFile::name);
  if (same_name == now.end()) return fmt::format("{} is gone", saved.name);
  if (same_name->tokens != saved.tokens || same_name->format != saved.format)
    return fmt::format("{} has {}, had {}", saved.name, str(*same_name), str(saved));
  return fmt::format("{} stands elsewhere in the order", saved.name);
}

Matched match(const std::vector<DataFile>& saved, const std::vector<DataFile>& now) {
  Matched matched;
  std::size_t next = 0;
  for (const DataFile& file : saved) {
    const auto at = std::find(now.begin() + static_cast<std::ptrdiff_t>(next), now.end(), file);
    if (at == now.end()) {
      matched.missing.push_back(problem_of(file, now));
      continue;
    }
    for (; now.begin() + static_cast<std::ptrdiff_t>(next) != at; ++next) matched.appended.push_back(now[next].name);
    matched.old.push_back(next++);
  }
  for (; next < now.size(); ++next) matched.appended.push_back(now[next].name);
  return matched;
}

}  // namespace

std::uint64_t content_digest(const TokenDataset& dataset, std::int64_t seq_len) {
  std::uint64_t digest = dataset.digest();
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(seq_len)), targets(inputs.size());
  for (const std::int64_t window : {std::int64_t{0}, dataset.num_sequences() / 2, dataset.num_sequences() - 1}) {
    if (window < 0 || window >= dataset.num_sequences()) continue;
    dataset.read(window, inputs, targets);
    digest = hash_bytes(inputs.data(), inputs.size() * sizeof(std::int32_t), digest);
  }
  return digest;
}

DataPart make_data_part(TokenDataset dataset, const JobConfig& config, std::int64_t first_batch,
                        std::int64_t first_epoch) {
  const SequenceOrder order(dataset.num_sequences(), config.batch.global_batch_size, config.run.seed,
                            config.data.shuffle, first_batch, first_epoch);
  const std::uint64_t digest =
      mix64(content_digest(dataset, config.model.seq_len) ^ mix64(config.run.seed + (config.data.shuffle ? 1 : 0)) ^
            static_cast<std::uint64_t>(config.batch.global_batch_size));
  return {std::move(dataset), order, digest};
}

std::vector<std::string> missing_files(const DataCursor& saved, const TokenDataset& now) {
  return match(saved.files, now.file_list()).missing;
}

DataContinuation continue_data(const DataCursor& saved, const TokenDataset& now, const JobConfig& config) {
  DataContinuation out;
  Matched matched;
  if (!saved.files.empty()) matched = match(saved.files, now.file_list());
  out.refused = std::move(matched.missing);
  if (!out.refused.empty()) return out;
  DataPart old = make_data_part(matched.appended.empty() ? now : now.only(matched.old), config, saved.first_batch,
                                saved.first_epoch);
  if (old.order_digest != saved.order_digest) {
    out.refused.emplace_back("what they hold, or their weights, has changed");
    return out;
  }
  if (matched.appended.empty() || config.run.overfit_one_batch) {
    out.parts.push_back(std::move(old));
    return out;
  }
  out.appended = std::move(matched.appended);
  const std::int64_t per_epoch = old.order.batches_per_epoch();
  const std::int64_t epochs = (saved.next_batch - saved.first_batch + per_epoch - 1) / per_epoch;  // begun
  const std::int64_t joins = saved.first_batch + epochs * per_epoch;
  if (joins > saved.next_batch) out.parts.push_back(std::move(old));
  out.parts.push_back(make_data_part(now, config, joins, saved.first_epoch + epochs));
  return out;
}

}  // namespace tessera
