// What `tessera bench train` holds a training step against: matrix products timed just before and just after it.
//
// A machine that is shared runs at one rate now and at another a second later. The best product of a run is then the rate of its luckiest
// milliseconds, which what takes seconds rarely reaches.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/stream.h"

namespace tessera {

// The library's threads spin for a while after a parallel call; what follows must not pay for it.
void let_library_threads_sleep();

// Seconds per FLOP of each contender, at one time.
using ProductWindow = std::vector<double>;

// The two forward products of a feed-forward block, [tokens, hidden] by [intermediate, hidden]^T and back, each by our grid and by one call of the
// library on all threads, on a device of their own (whose scratch stays).
class StepBaseline {
 public:
  StepBaseline(int threads, std::int64_t tokens, std::int64_t hidden_size, std::int64_t intermediate_size);

  // Runs every contender for about 0.25 s and at least three times, in the other order than the time before; rests before and after, since the
  // library's threads spin for a while and must not slow what comes next.
  ProductWindow measure();

  // FLOP/s of the best single product so far.
  double best() const { return best_; }

 private:
  struct Operands {
    Operands(std::int64_t num_tokens, std::int64_t outputs, std::int64_t inputs);
    std::int64_t tokens, out, in;
    std::vector<float> x, w, y;
  };
  double time(Operands& operands, bool by_library);

  int threads_;
  CpuDevice device_;
  Stream stream_;
  std::vector<Operands> operands_;
  bool library_first_ = false;
  double best_ = 0;
};

struct PairedRates {
  double steps = 0;                // FLOP/s of all steps together
  double products = 0;             // FLOP/s of the products around them, every step weighing the same FLOPs
  double lowest = 0, highest = 0;  // of a single step ÷ the products around it
};
// seconds[i] is the time of step i, between windows[i] and windows[i + 1]. One contender serves all steps: the one that is the fastest over all windows.
// Needs a step, and a window more than steps.
PairedRates pair_rates(double step_flops, const std::vector<double>& seconds,
                       const std::vector<ProductWindow>& windows);

}  // namespace tessera
