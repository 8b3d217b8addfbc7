#include "runtime/train/saved_job.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/config/load.h"

namespace tessera {

JobConfig saved_job(const Manifest& manifest, const std::string& folder) {
  ConfigResult result = check_config_text(manifest.training.config, folder);
  if (!result.problems.empty())
    throw CheckpointError(fmt::format("{}: its config does not load: {}", folder, result.problems.front().line_text()));
  return std::move(result.config);
}

}  // namespace tessera
