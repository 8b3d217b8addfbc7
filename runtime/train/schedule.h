// The learning rate as a function of the update's number.
#pragma once

#include <cstdint>

#include "runtime/config/job_config.h"

namespace tessera {

// Rate of update `update` (1 …). Warm-up: rate · update / warmup_steps; then, with t = update − warmup_steps and T = decay_steps (default
// num_steps − warmup_steps): constant: rate; linear: rate + (min − rate) t/T; cosine: min + ½ (rate − min)(1 + cos(π t/T)); min from t = T on.
// Computed in double by our own formulas (runtime/base/math.h): the same on every machine.
double learning_rate(const ScheduleConfig& schedule, double rate, std::int64_t num_steps, std::int64_t update);

}  // namespace tessera
