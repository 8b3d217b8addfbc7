// What a run directory tells a test.
#pragma once

#include <string>
#include <vector>

namespace tessera::test {

// The promised numbers of all updates in metrics.jsonl, which must be there once each.
std::vector<std::string> steps_of(const std::string& run_directory);
// The names in RUN/checkpoints, ascending.
std::vector<std::string> checkpoints_of(const std::string& run_directory);
// The text of all its logs. Ranks that are threads share one.
std::string logs_of(const std::string& run_directory);

}  // namespace tessera::test
