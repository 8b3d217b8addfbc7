#include "tools/bench_train.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
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

// Best rate of a product of the step, by the library's own threading and by our grid.
double best_gemm_rate(StreamView stream, int threads) {
  double best = 0;
  for (const Product& p : {kProducts[1], kProducts[2]}) {
    const std::vector<float> x = random_values(kTokens * p.in, 1);
    const std::vector<float> w = random_values(p.out * p.in, 2);
    std::vector<float> y(static_cast<std::size_t>(kTokens * p.out));
    const double flops = 2.0 * static_cast<double>(kTokens * p.out * p.in);
    best = std::max(best, best_rate(flops, 10, [&] {
                      ops::library_matmul(threads, false, true, kTokens, p.out, p.in, x.data(), w.data(), y.data());
                    }));
    let_library_threads_sleep();
    best = std::max(best, best_rate(flops, 10, [&] {
                      ops::linear_forward(stream, {.x = {x.data(), {kTokens, p.in}},
                                                   .w = {w.data(), {p.out, p.in}},
                                                   .y = {y.data(), {kTokens, p.out}}});
                    }));
  }
  return best;
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
  double gemm = 0;
  std::int64_t before_bytes = 0;
  {
    const Stream stream = device.create_stream("bench", StreamMode::kCompute);
    gemm = best_gemm_rate(stream.view(), options.threads);
    device.allocator().trim();
    before_bytes = resident_peak_bytes();
  }
  let_library_threads_sleep();
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
                               .progress = ProgressMode::kQuiet};
    train(context);
    memory = device.allocator().stats();
  }
  const std::int64_t peak_bytes = resident_peak_bytes();
  {
    const Stream stream = device.create_stream("bench", StreamMode::kCompute);
    gemm = std::max(gemm, best_gemm_rate(stream.view(), options.threads));
  }

  const Plan plan = make_plan(config, batch, {}, 0, options.threads);
  const std::vector<double> seconds = step_seconds(directory / "run/metrics.jsonl", options.warmup);
  require(!seconds.empty(), "the bench trained");
  const double typical = median(seconds);
  const double fastest = *std::min_element(seconds.begin(), seconds.end());
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  std::vector<Figure> figures = {
      {"step time, median", typical * 1e3, "ms", "", 0},
      {"step time, fastest", fastest * 1e3, "ms", "", 0},
      {"tokens per second", static_cast<double>(sequence_tokens) / typical, "tok/s", "", 0},
      {"model FLOP/s, median step", plan.step_flops() / typical / 1e9, "GFLOP/s", "best product", gemm / 1e9},
      {"model FLOP/s, fastest step", plan.step_flops() / fastest / 1e9, "GFLOP/s", "best product", gemm / 1e9},
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
