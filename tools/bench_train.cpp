#include "tools/bench_train.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
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
#include "tools/step_baseline.h"

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

// Resident bytes of this process now.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  file >> total >> resident;
  require(static_cast<bool>(file), "/proc/self/statm says how much is resident");
  return resident * sysconf(_SC_PAGESIZE);
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
  StepBaseline baseline(options.threads, config.batch.micro_batch_size * config.model.seq_len, config.model.hidden_size,
                        config.model.feed_forward_size());
  // Before every timed step, and after the last.
  std::vector<ProductWindow> windows(static_cast<std::size_t>(options.steps) + 1);
  const std::int64_t before_bytes = resident_bytes();
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
                               .before_step = [&](std::int64_t update) {
                                 const std::int64_t index = update - options.warmup - 1;
                                 if (index >= 0) windows[static_cast<std::size_t>(index)] = baseline.measure();
                               }};
    train(context);
    memory = device.allocator().stats();
  }
  const std::int64_t peak_bytes = resident_peak_bytes();
  windows.back() = baseline.measure();

  const Plan plan = make_plan(config, batch, {}, 0, options.threads);
  const std::vector<double> seconds = step_seconds(directory / "run/metrics.jsonl", options.warmup);
  require(!seconds.empty(), "the bench trained");
  const double typical = median(seconds);
  const double fastest = *std::min_element(seconds.begin(), seconds.end());
  const auto gigabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  const PairedRates rates = pair_rates(plan.step_flops(), seconds, windows);
  const double best = baseline.best();
  std::vector<Figure> figures = {
      {"step time, median", typical * 1e3, "ms", "", 0},
      {"step time, fastest", fastest * 1e3, "ms", "", 0},
      {"tokens per second", static_cast<double>(sequence_tokens) / typical, "tok/s", "", 0},
      {"model FLOP/s, all steps", rates.steps / 1e9, "GFLOP/s", "products around them", rates.products / 1e9},
      {"a step ÷ products around it, lowest", rates.lowest, "", "", 0},
      {"a step ÷ products around it, highest", rates.highest, "", "", 0},
      {"products around steps", rates.products / 1e9, "GFLOP/s", "best single product", best / 1e9},
      {"model FLOP/s, median step", plan.step_flops() / typical / 1e9, "GFLOP/s", "best single product", best / 1e9},
      {"model FLOP/s, fastest step", plan.step_flops() / fastest / 1e9, "GFLOP/s", "best single product", best / 1e9},
  };
  std::int64_t parts = before_bytes;
  figures.push_back({"memory: process before the job, with the baseline", gigabytes(before_bytes), "GB", "", 0});
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const std::int64_t bytes = memory.at_peak.at(static_cast<std::size_t>(c));
    if (bytes == 0) continue;
    parts += bytes;
    figures.push_back({fmt::format("memory: {} at the peak", name_of(static_cast<MemoryCategory>(c))), gigabytes(bytes),
                       "GB", "", 0});
  }
  figures.push_back({"memory: process peak", gigabytes(peak_bytes), "GB", "sum of the parts", gigabytes(parts)});
  figures.push_back({"memory: reserved by the allocator", gigabytes(memory.reserved_peak), "GB", "allocated peak",
                     gigabytes(memory.total.allocated_peak)});
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
