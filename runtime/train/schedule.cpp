#include "runtime/train/schedule.h"

#include <algorithm>
#include <numbers>

#include "runtime/base/error.h"
#include "runtime/base/math.h"

namespace tessera {

double learning_rate(const ScheduleConfig& schedule, double rate, std::int64_t num_steps, std::int64_t update) {
  require(update >= 1, "updates are counted from 1");
  if (update <= schedule.warmup_steps)
    return rate * static_cast<double>(update) / static_cast<double>(schedule.warmup_steps);
  if (schedule.name == "constant") return rate;
  const std::int64_t t = update - schedule.warmup_steps;
  const std::int64_t period =
      schedule.decay_steps.value_or(std::max<std::int64_t>(1, num_steps - schedule.warmup_steps));
  const double min = schedule.min_learning_rate;
  if (t >= period) return min;
  const double part = static_cast<double>(t) / static_cast<double>(period);
  if (schedule.name == "linear") return rate + (min - rate) * part;
  require(schedule.name == "cosine", "a schedule the config accepts");
  return min + 0.5 * (rate - min) * (1.0 + math::cos(std::numbers::pi * part));
}

}  // namespace tessera
