// The job file that a checkpoint keeps.
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "runtime/config/job_config.h"

namespace tessera {

// CheckpointError naming `folder` where it does not load.
JobConfig saved_job(const Manifest& manifest, const std::string& folder);

}  // namespace tessera
