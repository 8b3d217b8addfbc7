// From a resolved config to the moment before the first step.
#pragma once

#include <cstdint>

#include "runtime/train/training_run.h"

namespace tessera {

enum class StartOutcome : std::uint8_t {
  kReady,    // the header is printed; the run goes on from run.at
  kFinished  // the run had reached its end, and that was said: nothing was written
};

// Collective. Connects the ranks, opens the data, builds program, model and optimizer, takes the run directory, loads the checkpoint that the run
// goes on from, and opens reports and saves. What is wrong on any rank ends the start on all with one error (AgreedError) before the run directory
// is changed, as far as it can be known by then; a job that differs between ranks likewise.
StartOutcome start(TrainingRun& run);

}  // namespace tessera
