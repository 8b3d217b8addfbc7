// Strict loading of job files: unknown keys (with the nearest valid name and the names of other frameworks), duplicate
// keys, wrong types, out-of-range values, octal-looking integers, non-finite numbers and keys that are not available
// yet are problems; all are listed at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job_config.h"

namespace tessera {

struct ConfigProblem {
  std::string file;  // or "--set"
  int line = 0;      // 1-based; a missing key has its section's; 0: no line (missing section, --set)
  std::string key;   // dotted path
  std::string message;
  std::string hint;
  // "bad.yaml:12: optimizer.weigth_decay: unknown key; hint: weight_decay"
  std::string line_text() const;
  friend bool operator==(const ConfigProblem&, const ConfigProblem&) = default;
};

// The config, or ConfigError whose message is all problems, one per line. overrides: "key=value" with YAML values,
// applied in order over the file, by the same rules.
JobConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {});
// The same, problems returned instead of thrown (config is meaningful only when there are none).
struct ConfigResult {
  JobConfig config;
  std::vector<ConfigProblem> problems;
};
ConfigResult check_config(const std::string& path, const std::vector<std::string>& overrides = {});
ConfigResult check_config_text(std::string_view yaml, const std::string& file_name,
                               const std::vector<std::string>& overrides = {});

// device.memory_limit in bytes; 0 where there is none. (Validated when loaded; ConfigError for a struct filled
// otherwise.)
std::int64_t memory_limit_bytes(const DeviceConfig& device);

// What depends on the number of ranks: mesh product, dp resolved, lanes resolved, batch = dp × micro × accumulation,
// lanes ÷ dp a power of two … Throws ConfigError naming the numbers. Fills every auto.
struct ResolvedBatch {
  std::int64_t dp = 1, pp = 1, tp = 1;
  std::int64_t lanes = 1;                   // of the whole batch
  std::int64_t accumulation = 1;            // A: micro-batches per lane
  std::int64_t lanes_per_rank = 1;          // lanes / dp
  std::int64_t micro_batches_per_rank = 1;  // lanes_per_rank · A
};
ResolvedBatch resolve(const JobConfig& config, std::int64_t world_size);
// The dp values that the lanes allow, ascending.
std::vector<std::int64_t> dp_values_that_fit(const JobConfig& config, std::int64_t lanes);

// The resolved config as YAML that loads back to the same JobConfig (config.yaml of a run directory, `config show`).
std::string to_yaml(const JobConfig& config);
std::string to_json(const JobConfig& config);

// `config explain KEY`: type, default, range, meaning, names in other frameworks; ConfigError with the nearest name for
// an unknown key.
std::string explain_key(std::string_view key);
// Every dotted key, in the order of the documentation.
std::vector<std::string> all_keys();
// JSON Schema (2020-12) of a job file, for editors.
std::string json_schema();

}  // namespace tessera
