#include "tools/bench_train.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

#include "parallel/threads/threads_communicator.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/float_environment.h"
#include "runtime/base/rng.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/matmul.h"
#include "runtime/ops/matmul_bench.h"
#include "runtime/train/plan.h"
#include "runtime/train/reporter.h"
#include "runtime/train/trainer.h"
#include "tools/bench_job.h"
#include "tools/figures.h"

namespace tessera {
namespace {

constexpr std::int64_t kTokens = 1024;

struct Product {
  const char* name;
  std::int64_t out, in;  // of the weight
};

// The matrices of GPT-2 124M, and one of CPU_NOTES' sizes for the best rate.
constexpr Product kProducts[] = {{"attention 768×768", 768, 768},
                                 {"feed-forward up 3072×768", 3072, 768},
                                 {"feed-forward down 768×3072", 768, 3072},
                                 {"head 50304×768", 50304, 768}};

std::vector<float> random_values(std::int64_t n, std::uint64_t stream) {
  const CounterRng rng(1, RandomPurpose::kBench, stream);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rng.uniform(i)) - 0.5F;
  return values;
}

// Largest rate in FLOP/s of `repeats` runs after one that is not timed.
template <typename Run>
double best_rate(double flops, int repeats, Run run) {
  run();
  double best = 1e300;
  for (int r = 0; r < repeats; ++r) {
    const double start = monotonic_seconds();
    run();
    best = std::min(best, monotonic_seconds() - start);
  }
  return flops / best;
}

// The library's threads spin for a while after a parallel call; what follows must not pay for it.
void let_library_threads_sleep() {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// What a step is measured against: the forward products of a block's feed-forward, each by one call of the library on all threads and by our grid, on
// a device of their own. A machine that is shared runs at one rate now and at another a second later, so they are timed around every step.
class BaselineProducts {
 public:
  static constexpr std::size_t kContenders = 4;
  // Seconds per FLOP of each contender.
  using Window = std::array<double, kContenders>;

  explicit BaselineProducts(int threads)
      : threads_(threads),
        device_({.num_threads = threads}),
        stream_(device_.create_stream("bench", StreamMode::kCompute)) {
    measure();  // scratch and code exist from here on
    best_ = 0;
  }

  // Some 1.3 s for GPT-2 124M's products.
  Window measure() {
    Window window{};
    std::size_t contender = 0;
    for (Operands& operands : operands_) {
      window[contender++] = time(operands, [&] {
        ops::linear_forward(stream_.view(), {.x = {operands.x.data(), {kTokens, operands.in}},
                                             .w = {operands.w.data(), {operands.out, operands.in}},
                                             .y = {operands.y.data(), {kTokens, operands.out}}});
      });
    }
    for (Operands& operands : operands_) {
      window[contender++] = time(operands, [&] {
        ops::library_matmul(threads_, false, true, kTokens, operands.out, operands.in, operands.x.data(),
                            operands.w.data(), operands.y.data());
      });
    }
    let_library_threads_sleep();
    return window;
  }

  // FLOP/s of the best single product so far.
  double best() const { return best_; }

 private:
  static constexpr int kRunsPerWindow = 8;

  struct Operands {
    explicit Operands(const Product& product)
        : out(product.out),
          in(product.in),
          x(random_values(kTokens * in, 1)),
          w(random_values(out * in, 2)),
          y(static_cast<std::size_t>(kTokens * out)) {}
    double flops() const { return 2.0 * static_cast<double>(kTokens * out * in); }
    std::int64_t out, in;
    std::vector<float> x, w, y;
  };

  template <typename Run>
  double time(const Operands& operands, Run run) {
    run();  // brings the operands back into the caches
    double total = 0;
    for (int r = 0; r < kRunsPerWindow; ++r) {
      const double start = monotonic_seconds();
      run();
      const double seconds = monotonic_seconds() - start;
      best_ = std::max(best_, operands.flops() / seconds);
      total += seconds;
    }
    return total / kRunsPerWindow / operands.flops();
  }

  int threads_;
  CpuDevice device_;
  Stream stream_;
  std::array<Operands, 2> operands_ = {Operands(kProducts[1]), Operands(kProducts[2])};
  double best_ = 0;
};

// The rate of the contender that was the fastest in both windows together.
double rate_of_windows(const BaselineProducts::Window& before, const BaselineProducts::Window& after) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < before.size(); ++i) least = std::min(least, (before[i] + after[i]) / 2);
  return 1 / least;
}

// Peak resident bytes of this process so far.
std::int64_t resident_peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

// A folder that goes with the object.
}  // namespace

int run_bench_train(const BenchTrainOptions& options) {
  set_float_environment();
  const TemporaryDirectory directory;
  JobConfig config = options.config.empty() ? gpt2_124m() : load_config(options.config);
  const std::int64_t sequence_tokens = config.model.seq_len * config.batch.global_batch_size;
  const std::int64_t steps = options.steps + options.warmup;
  write_random_tokens(directory / "tokens.bin", num_tokens_for(config, steps), config.model.vocab_size);
  prepare_job(config, directory / "tokens.bin", steps);
  CpuDevice device({.num_threads = options.threads});
  const ResolvedBatch batch = resolve(config, 1);
  BaselineProducts products(options.threads);
  const std::int64_t before_bytes = resident_peak_bytes();
  std::vector<BaselineProducts::Window> windows;
  MemoryStats memory;
  {
    const auto world = make_threads_world(1);
    const TrainContext context{.config = config,
                               .batch = batch,
                               .mesh = {},
                               .placement = Placement::canonical(1),
                               .run_directory = directory / "run",
                               .device_summary = "cpu",
                               .num_threads = options.threads,
                               .factory = *world.front(),
                               .device = device,
                               .progress = ProgressMode::kQuiet,
                               .before_step = [&] { windows.push_back(products.measure()); }};
    train(context);
    memory = device.allocator().stats();
  }
  const std::int64_t peak_bytes = resident_peak_bytes();
  windows.push_back(products.measure());

  const Plan plan = make_plan(config, batch, {}, 0, options.threads);
  const std::vector<double> seconds = step_seconds(directory / "run/metrics.jsonl", options.warmup);
  require(!seconds.empty(), "the bench trained");
  require(windows.size() == seconds.size() + static_cast<std::size_t>(options.warmup) + 1,
          "a window before and after every step");
  const double typical = median(seconds);
  const double fastest = *std::min_element(seconds.begin(), seconds.end());
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  // Every step beside the products timed just before and just after it.
  std::vector<Figure> beside;
  double baseline_seconds = 0;  // per FLOP, summed over steps
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const std::size_t window = i + static_cast<std::size_t>(options.warmup);
    const double rate = rate_of_windows(windows[window], windows[window + 1]);
    beside.push_back({"model FLOP/s beside products, median", plan.step_flops() / seconds[i] / 1e9, "GFLOP/s",
                      "products around that step", rate / 1e9});
    baseline_seconds += 1 / rate;
  }
  std::sort(beside.begin(), beside.end(), [](const Figure& a, const Figure& b) { return a.ratio() < b.ratio(); });
  const double mean_rate = static_cast<double>(seconds.size()) / baseline_seconds;
  const double best = products.best();
  std::vector<Figure> figures = {
      {"step time, median", typical * 1e3, "ms", "", 0},
      {"step time, fastest", fastest * 1e3, "ms", "", 0},
      {"tokens per second", static_cast<double>(sequence_tokens) / typical, "tok/s", "", 0},
      beside[(beside.size() - 1) / 2],
      {"products around all steps, mean", mean_rate / 1e9, "GFLOP/s", "best single product", best / 1e9},
      {"model FLOP/s, median step", plan.step_flops() / typical / 1e9, "GFLOP/s", "best single product", best / 1e9},
      {"model FLOP/s, fastest step", plan.step_flops() / fastest / 1e9, "GFLOP/s", "best single product", best / 1e9},
  };
  std::int64_t parts = before_bytes;
  figures.push_back({"memory: process before the job", gib(before_bytes), "GB", "", 0});
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const std::int64_t bytes = memory.at_peak.at(static_cast<std::size_t>(c));
    if (bytes == 0) continue;
    parts += bytes;
    figures.push_back(
        {fmt::format("memory: {} at the peak", name_of(static_cast<MemoryCategory>(c))), gib(bytes), "GB", "", 0});
  }
  figures.push_back({"memory: process peak", gib(peak_bytes), "GB", "sum of the parts", gib(parts)});
  figures.push_back({"memory: reserved by the allocator", gib(memory.reserved_peak), "GB", "allocated peak",
                     gib(memory.total.allocated_peak)});
  std::fputs((options.json ? figures_json(figures) : figures_text(figures)).c_str(), stdout);
  return 0;
}

int run_bench_gemm(const BenchGemmOptions& options) {
  set_float_environment();
  CpuDevice device({.num_threads = options.threads});
  const Stream stream = device.create_stream("bench", StreamMode::kCompute);
  std::vector<Figure> figures;
  for (const Product& p : kProducts) {
    // The head runs in chunks of rows, as in training.
    const std::int64_t rows = p.out > 4096 ? ops::kHeadChunkRows : kTokens;
    const std::vector<float> x = random_values(rows * p.in, 1);
    const std::vector<float> w = random_values(p.out * p.in, 2);
    const std::vector<float> dy = random_values(rows * p.out, 3);
    std::vector<float> y(static_cast<std::size_t>(rows * p.out));
    std::vector<float> dx(x.size());
    std::vector<float> dw(w.size());
    const double flops = 2.0 * static_cast<double>(rows * p.out * p.in);
    const auto add = [&](const char* kind, auto ours, auto library) {
      double our_rate = 0;
      double library_rate = 0;
      for (int round = 0; round < 3; ++round) {  // interleaved, so that a noisy moment hits both
        our_rate = std::max(our_rate, best_rate(flops, options.repeats, ours));
        library_rate = std::max(library_rate, best_rate(flops, options.repeats, library));
        let_library_threads_sleep();
      }
      figures.push_back(
          {fmt::format("{}, {}", p.name, kind), our_rate / 1e9, "GFLOP/s", "one library call", library_rate / 1e9});
    };
    add(
        "forward",
        [&] {
          ops::linear_forward(
              stream.view(),
              {.x = {x.data(), {rows, p.in}}, .w = {w.data(), {p.out, p.in}}, .y = {y.data(), {rows, p.out}}});
        },
        [&] { ops::library_matmul(options.threads, false, true, rows, p.out, p.in, x.data(), w.data(), y.data()); });
    add(
        "input gradient",
        [&] {
          ops::linear_backward_input(
              stream.view(),
              {.dy = {dy.data(), {rows, p.out}}, .w = {w.data(), {p.out, p.in}}, .dx = {dx.data(), {rows, p.in}}});
        },
        [&] { ops::library_matmul(options.threads, false, false, rows, p.in, p.out, dy.data(), w.data(), dx.data()); });
    add(
        "weight gradient",
        [&] {
          ops::linear_backward_weight(
              stream.view(),
              {.dy = {dy.data(), {rows, p.out}}, .x = {x.data(), {rows, p.in}}, .dw = {dw.data(), {p.out, p.in}}});
        },
        [&] { ops::library_matmul(options.threads, true, false, p.out, p.in, rows, dy.data(), x.data(), dw.data()); });
  }
  std::fputs((options.json ? figures_json(figures) : figures_text(figures)).c_str(), stdout);
  return 0;
}

}  // namespace tessera
