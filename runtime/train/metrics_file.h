// metrics.jsonl across starts of a run.
#pragma once

#include <string>

#include "runtime/train/run_state.h"

namespace tessera {

// Leaves of the file what happened up to `at`, whole or not at all: the run makes the later steps, and what else is written after them, again. A
// line that a dying run left unfinished goes too. DeviceError where the file cannot be written.
void cut_metrics(const std::string& path, const Progress& at);

}  // namespace tessera
