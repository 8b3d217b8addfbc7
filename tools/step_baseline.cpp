#include "tools/step_baseline.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/ops/matmul.h"
#include "runtime/ops/matmul_bench.h"
#include "tools/bench_job.h"

namespace tessera {
namespace {

constexpr double kSecondsPerContender = 0.25;
constexpr int kLeastRuns = 3;

}  // namespace

void let_library_threads_sleep() {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

StepBaseline::Operands::Operands(std::int64_t num_tokens, std::int64_t outputs, std::int64_t inputs)
    : tokens(num_tokens),
      out(outputs),
      in(inputs),
      x(random_values(tokens * in, 1)),
      w(random_values(out * in, 2)),
      y(static_cast<std::size_t>(tokens * out)) {}

StepBaseline::StepBaseline(int threads, std::int64_t tokens, std::int64_t hidden_size, std::int64_t intermediate_size)
    : threads_(threads),
      device_({.num_threads = threads}),
      stream_(device_.create_stream("bench", StreamMode::kCompute)) {
  operands_.emplace_back(tokens, intermediate_size, hidden_size);
  operands_.emplace_back(tokens, hidden_size, intermediate_size);
  measure();  // from here on scratch and code exist
  best_ = 0;
}

ProductWindow StepBaseline::measure() {
  ProductWindow window(2 * operands_.size());
  let_library_threads_sleep();
  for (const bool by_library : {library_first_, !library_first_}) {
    for (std::size_t i = 0; i < operands_.size(); ++i)
      window[2 * i + (by_library ? 1 : 0)] = time(operands_[i], by_library);
    if (by_library) let_library_threads_sleep();
  }
  if (library_first_) let_library_threads_sleep();  // so that what comes next finds the same, whichever came last
  library_first_ = !library_first_;
  return window;
}

double StepBaseline::time(Operands& o, bool by_library) {
  const auto run = [&] {
    if (by_library) {
      ops::library_matmul(threads_, false, true, o.tokens, o.out, o.in, o.x.data(), o.w.data(), o.y.data());
    } else {
      ops::linear_forward(stream_.view(), {.x = {o.x.data(), {o.tokens, o.in}},
                                           .w = {o.w.data(), {o.out, o.in}},
                                           .y = {o.y.data(), {o.tokens, o.out}}});
    }
  };
  const double flops = 2.0 * static_cast<double>(o.tokens * o.out * o.in);
  run();  // brings the operands back into the caches
  double total = 0;
  int runs = 0;
  for (; runs < kLeastRuns || total < kSecondsPerContender; ++runs) {
    const double start = monotonic_seconds();
    run();
    const double seconds = monotonic_seconds() - start;
    best_ = std::max(best_, flops / seconds);
    total += seconds;
  }
  return total / runs / flops;
}

PairedRates pair_rates(double step_flops, const std::vector<double>& seconds,
                       const std::vector<ProductWindow>& windows) {
  require(!seconds.empty() && windows.size() == seconds.size() + 1, "a window before and after every step");
  const auto over_all = [&](std::size_t contender) {
    return std::accumulate(windows.begin(), windows.end(), 0.0,
                           [&](double sum, const ProductWindow& window) { return sum + window[contender]; });
  };
  std::size_t fastest = 0;
  for (std::size_t c = 1; c < windows.front().size(); ++c) {
    if (over_all(c) < over_all(fastest)) fastest = c;
  }
  PairedRates rates{.lowest = std::numeric_limits<double>::infinity()};
  double step_seconds = 0;
  double product_seconds = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double products = step_flops * (windows[i][fastest] + windows[i + 1][fastest]) / 2;
    rates.lowest = std::min(rates.lowest, products / seconds[i]);
    rates.highest = std::max(rates.highest, products / seconds[i]);
    step_seconds += seconds[i];
    product_seconds += products;
  }
  const double flops = step_flops * static_cast<double>(seconds.size());
  rates.steps = flops / step_seconds;
  rates.products = flops / product_seconds;
  return rates;
}

}  // namespace tessera
