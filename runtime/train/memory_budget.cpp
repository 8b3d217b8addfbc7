#include "runtime/train/memory_budget.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/train/plan.h"
#include "runtime/train/reporter.h"

namespace tessera {
namespace {

// One key set to another value.
struct Change {
  std::string key, value;
  bool changes_bits = false;
  std::function<void(JobConfig&)> apply;
};

std::vector<Change> single_changes(const JobConfig& config) {
  const FsdpConfig& fsdp = config.fsdp;
  std::vector<Change> changes;
  const auto set = [&](bool differs, const char* key, const char* value, std::function<void(FsdpConfig&)> apply) {
    if (differs) changes.push_back({key, value, false, [apply](JobConfig& job) { apply(job.fsdp); }});
  };
  set(fsdp.forward_prefetch_depth > 0, "fsdp.forward_prefetch_depth", "0",
      [](FsdpConfig& f) { f.forward_prefetch_depth = 0; });
  set(fsdp.backward_prefetch == "backward_pre", "fsdp.backward_prefetch", "backward_post",
      [](FsdpConfig& f) { f.backward_prefetch = "backward_post"; });
  set(fsdp.backward_prefetch != "none", "fsdp.backward_prefetch", "none",
      [](FsdpConfig& f) { f.backward_prefetch = "none"; });
  set(fsdp.max_inflight_all_gathers > 1, "fsdp.max_inflight_all_gathers", "1",
      [](FsdpConfig& f) { f.max_inflight_all_gathers = 1; });
  const bool may_reshard = fsdp.strategy == "full_shard" || fsdp.strategy == "hybrid_shard";
  set(may_reshard && fsdp.reshard_after_forward == "false", "fsdp.reshard_after_forward", "true",
      [](FsdpConfig& f) { f.reshard_after_forward = "true"; });
  set(fsdp.wrap != "block", "fsdp.wrap", "block", [](FsdpConfig& f) { f.wrap = "block"; });
  set(fsdp.strategy != "full_shard", "fsdp.strategy", "full_shard", [](FsdpConfig& f) { f.strategy = "full_shard"; });
  set(fsdp.reduce == "once", "fsdp.reduce", "every_micro_batch", [](FsdpConfig& f) { f.reduce = "every_micro_batch"; });
  if (fsdp.reduce == "once") changes.back().changes_bits = true;
  for (std::int64_t size = config.batch.micro_batch_size - 1; size >= 1; --size) {
    if (config.batch.micro_batch_size % size != 0) continue;
    changes.push_back({"batch.micro_batch_size", fmt::format("{}", size), true,
                       [size](JobConfig& job) { job.batch.micro_batch_size = size; }});
  }
  return changes;
}

// The search for a job that fits, around one that does not.
class Search {
 public:
  Search(const JobConfig& config, const Plan& plan, std::int64_t limit, int num_threads)
      : config_(config), plan_(plan), limit_(limit), num_threads_(num_threads) {}

  std::string hint() {
    const std::vector<Change> changes = single_changes(config_);
    if (const auto found = first_single(changes)) return *found;
    if (const auto found = first_pair(changes)) return *found;
    if (const auto found = more_ranks()) return *found;
    std::string hint = "none of the changes tried (one or two keys of fsdp and batch, or more ranks) fits";
    if (!least_.empty()) hint += fmt::format("; the least is {} with {}", format_bytes(least_bytes_), least_);
    return hint + "; a smaller model, or more memory";
  }

 private:
  std::optional<std::string> first_single(const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      if (const auto found = try_changes({&change})) return found;
    }
    return std::nullopt;
  }

  std::optional<std::string> first_pair(const std::vector<Change>& changes) {
    for (const bool changes_bits : {false, true}) {
      for (std::size_t a = 0; a < changes.size(); ++a) {
        for (std::size_t b = a + 1; b < changes.size(); ++b) {
          if ((changes[a].changes_bits || changes[b].changes_bits) != changes_bits || changes[a].key == changes[b].key)
            continue;
          if (const auto found = try_changes({&changes[a], &changes[b]})) return found;
        }
      }
    }
    return std::nullopt;
  }

  // "key: value needs 1.40 GiB" where it fits.
  std::optional<std::string> try_changes(const std::vector<const Change*>& changes) {
    JobConfig changed = config_;
    std::string words;
    bool changes_bits = false;
    for (const Change* change : changes) {
      change->apply(changed);
      words += fmt::format("{}{}: {}", words.empty() ? "" : " and ", change->key, change->value);
      changes_bits = changes_bits || change->changes_bits;
    }
    const auto bytes = need_of(changed, plan_.mesh.num_ranks(), words);
    if (!bytes || *bytes > limit_) return std::nullopt;
    return fmt::format("{} needs {}{}", words, format_bytes(*bytes),
                       changes_bits ? " (sums in another order: other bits)" : "");
  }

  std::optional<std::string> more_ranks() {
    JobConfig changed = config_;
    changed.mesh.dp.reset();
    const std::int64_t most =
        config_.batch.global_batch_size / config_.batch.micro_batch_size * config_.mesh.pp * config_.mesh.tp;
    for (std::int64_t ranks = plan_.mesh.num_ranks() + 1; ranks <= most; ++ranks) {
      const auto bytes = need_of(changed, ranks, fmt::format("{} ranks", ranks));
      if (!bytes || *bytes > limit_) continue;
      return fmt::format("{} ranks with as much memory need {} each{}", ranks, format_bytes(*bytes),
                         config_.reproducibility.lanes ? "" : " (lanes: auto makes as many lanes: other bits)");
    }
    return std::nullopt;
  }

  // The peak of a job; nothing where such a job cannot be.
  std::optional<std::int64_t> need_of(const JobConfig& config, std::int64_t ranks, const std::string& words) {
    std::int64_t bytes = 0;
    try {
      const ResolvedBatch batch = resolve(config, ranks);
      const MeshShape mesh = make_mesh(config.fsdp, batch, plan_.mesh.shard_size);
      bytes = make_plan(config, batch, mesh, ranks == plan_.mesh.num_ranks() ? plan_.logical_rank : 0, num_threads_)
                  .peak()
                  .bytes;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
    if (bytes < least_bytes_) {
      least_bytes_ = bytes;
      least_ = words;
    }
    return bytes;
  }

  const JobConfig& config_;
  const Plan& plan_;
  std::int64_t limit_;
  int num_threads_;
  std::int64_t least_bytes_ = std::numeric_limits<std::int64_t>::max();
  std::string least_;
};

}  // namespace

MemoryBudget memory_budget(const DeviceConfig& config, const MemoryBudget& device) {
  const std::int64_t limit = memory_limit_bytes(config);
  if (limit > 0 && (device.bytes == 0 || limit <= device.bytes)) return {limit, "device.memory_limit"};
  return device;
}

std::string cheapest_fix(const JobConfig& config, const Plan& plan, std::int64_t limit, int num_threads) {
  return Search(config, plan, limit, num_threads).hint();
}

void check_memory(const JobConfig& config, const Plan& plan, const MemoryBudget& budget, int num_threads) {
  const Plan::Peak peak = plan.peak();
  if (budget.bytes == 0 || peak.bytes <= budget.bytes) return;
  // Figures that look alike are given in full.
  const bool alike = format_bytes(peak.bytes) == format_bytes(budget.bytes);
  const auto text = [&](std::int64_t bytes) { return alike ? fmt::format("{} bytes", bytes) : format_bytes(bytes); };
  throw DeviceError(fmt::format("memory: a rank needs {} (at {}) and has {} ({})", text(peak.bytes), peak.place,
                                text(budget.bytes), budget.source),
                    cheapest_fix(config, plan, budget.bytes, num_threads));
}

}  // namespace tessera
