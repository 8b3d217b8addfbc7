#include "tools/bench_collectives.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "parallel/mpi/mpi_communicator.h"
#include "parallel/shm/shm_communicator.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/optimizer_ops.h"
#include "tools/bench_fingerprints.h"
#include "tools/figures.h"

namespace tessera {
namespace {

struct Contender {
  std::string name;
  std::function<void()> run;
  int batch = 1;                                             // runs between two looks at the clock
  double seconds = std::numeric_limits<double>::infinity();  // per run, of the slowest rank, at best
};

// Memory that a rank reads to push everything else out of the caches: as much as the last level holds, so that all ranks
// together read that many times over.
class CacheSweep {
 public:
  CacheSweep() : words_(last_cache_bytes() / sizeof(std::uint64_t)) {}

  // The sum keeps the reads from being left out.
  std::uint64_t run() const { return std::accumulate(words_.begin(), words_.end(), std::uint64_t{0}); }

 private:
  // As the kernel tells, "32768K" (sysconf gives the sum over a package); where it does not, what few have.
  static std::size_t last_cache_bytes() {
    constexpr std::size_t kMostKib = std::size_t{64} << 10;
    std::size_t kib = 0;
    std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kib;
    return (kib == 0 ? kMostKib : std::min(kib, kMostKib)) << 10;
  }

  std::vector<std::uint64_t> words_;
};

// Where operands are when a contender starts.
enum class Start {
  kAsItIs,
  kOwnRun,      // where a run of its own has left them: in caches as far as they fit
  kFromMemory,  // in no cache, as far as reading others brings that about
};

// One round: every contender in turn.
void run_round(std::vector<Contender>& contenders, Start start_from, const CacheSweep& sweep) {
  for (Contender& contender : contenders) {
    if (start_from == Start::kOwnRun) contender.run();
    if (start_from == Start::kFromMemory) require(sweep.run() == 0, "what is read is zero");
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = monotonic_seconds();
    for (int i = 0; i < contender.batch; ++i) contender.run();
    double seconds = (monotonic_seconds() - start) / contender.batch;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    contender.seconds = std::min(contender.seconds, seconds);
  }
}

// The same contenders, each for a job of its own name.
std::vector<Contender> from_memory(std::vector<Contender> contenders) {
  for (Contender& contender : contenders) {
    contender.name.insert(std::min(contender.name.find(','), contender.name.size()), " from memory");
  }
  return contenders;
}

// Operands of one place: full = all shards, shard = one.
struct Operands {
  Operands(Allocator& allocator, MemoryCategory category, StreamView stream, std::size_t shard_bytes, int ranks)
      : full(allocator.allocate(shard_bytes * static_cast<std::size_t>(ranks), category, stream)),
        shard(allocator.allocate(shard_bytes, category, stream)) {
    // Zeros, so that sums of sums stay what they are.
    std::fill(full.span<float>().begin(), full.span<float>().end(), 0.0F);
    std::fill(shard.span<float>().begin(), shard.span<float>().end(), 0.0F);
  }
  Buffer full, shard;
};

class CollectivesBench {
 public:
  explicit CollectivesBench(const BenchCollectivesOptions& options)
      : options_(options),
        stream_owner_(device_.create_stream("bench", StreamMode::kCompute)),
        stream_(stream_owner_.view()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    const Placement placement = Placement::canonical(ranks_);
    const Group world = canonical_groups({.dp = ranks_})[0];
    shm_factory_ = make_shm_factory(placement);
    mpi_factory_ = make_mpi_factory(placement);
    shm_ = shm_factory_->create(world, {});
    mpi_ = mpi_factory_->create(world, {});
    device_.allocator().set_resource(MemoryCategory::kGathered, *shm_factory_->shared_memory());
    count_ = options.shard_bytes / sizeof(float);
  }

  int run() {
    Operands shared(device_.allocator(), MemoryCategory::kGathered, stream_, options_.shard_bytes, ranks_);
    Operands own(device_.allocator(), MemoryCategory::kWorkspace, stream_, options_.shard_bytes, ranks_);
    Operands other(device_.allocator(), MemoryCategory::kWorkspace, stream_, options_.shard_bytes, ranks_);
    const std::size_t full_bytes = options_.shard_bytes * static_cast<std::size_t>(ranks_);

    std::vector<Contender> large;
    large.push_back({"copy", [&] { std::memcpy(own.full.data(), other.full.data(), full_bytes); }});
    // What peers read is shared; what only this rank reads is not, as in a training job.
    add_ours(large, "shm", *shm_, shared, own);
    add_ours(large, "mpi", *mpi_, own, other);
    add_open_mpi(large, own, other);

    std::vector<Contender> cold = from_memory(large);

    std::vector<std::int64_t> words(22, 1);
    std::vector<Contender> small;
    small.push_back({"all_reduce of 22 words, shm",
                     [&] {
                       shm_->all_reduce({.data = words.data(), .count = words.size(), .dtype = DType::kInt64}, stream_)
                           .synchronize();
                     },
                     20});
    small.push_back({"all_reduce of 22 words, MPI_Allreduce",
                     [&] {
                       MPI_Allreduce(MPI_IN_PLACE, words.data(), static_cast<int>(words.size()), MPI_INT64_T, MPI_SUM,
                                     MPI_COMM_WORLD);
                     },
                     20});

    const CacheSweep sweep;
    for (int round = 0; round < options_.repeats + 2; ++round) {
      run_round(large, Start::kOwnRun, sweep);
      run_round(cold, Start::kFromMemory, sweep);
      run_round(small, Start::kAsItIs, sweep);
      // The first rounds fault pages in and set up connections.
      if (round == 1) forget(large), forget(cold), forget(small);
    }
    const std::vector<Figure> identity = measure_fingerprints(options_.repeats, options_.large);
    report({large, cold}, small, identity);
    return 0;
  }

 private:
  // The in-place form of all_gather skips the copy of the own shard.
  void add_ours(std::vector<Contender>& list, const std::string& backend, Communicator& communicator, Operands& inputs,
                Operands& outputs) {
    float* full = inputs.full.as<float>();
    const std::vector<std::uint64_t> counts(static_cast<std::size_t>(ranks_), count_);
    const auto all_gather = [=, this, &communicator](const float* input, float* output) {
      communicator.all_gather({.input = input, .output = output, .count = count_}, stream_).synchronize();
    };
    list.push_back({"all_gather, " + backend,
                    [=, &inputs, &outputs] { all_gather(inputs.shard.as<float>(), outputs.full.as<float>()); }});
    list.push_back({"all_gather in place, " + backend,
                    [=, this] { all_gather(full + count_ * static_cast<std::size_t>(rank_), full); }});
    list.push_back(
        {"reduce_scatter, " + backend, [=, this, &communicator, &outputs] {
           communicator.reduce_scatter({.parts = {{full, outputs.shard.data(), counts}}}, stream_).synchronize();
         }});
    list.push_back({"all_reduce, " + backend, [=, this, &communicator] {
                      communicator
                          .all_reduce({.data = full, .count = count_ * static_cast<std::size_t>(ranks_)}, stream_)
                          .synchronize();
                    }});
  }

  void add_open_mpi(std::vector<Contender>& list, Operands& at, Operands& scratch) {
    float* full = at.full.as<float>();
    float* shard = at.shard.as<float>();
    float* received = scratch.full.as<float>();
    const int count = static_cast<int>(count_);
    const std::vector<int> counts(static_cast<std::size_t>(ranks_), count);
    list.push_back({"all_gather, MPI_Allgather",
                    [=] { MPI_Allgather(shard, count, MPI_FLOAT, full, count, MPI_FLOAT, MPI_COMM_WORLD); }});
    list.push_back({"all_gather in place, MPI_Allgather",
                    [=] { MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, full, count, MPI_FLOAT, MPI_COMM_WORLD); }});
    list.push_back({"reduce_scatter, MPI_Reduce_scatter",
                    [=] { MPI_Reduce_scatter(full, shard, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }});
    list.push_back({"reduce_scatter, MPI_Reduce_scatter_block",
                    [=] { MPI_Reduce_scatter_block(full, shard, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }});
    list.push_back({"reduce_scatter, MPI_Alltoall and adding", [=, this] {
                      MPI_Alltoall(full, count, MPI_FLOAT, received, count, MPI_FLOAT, MPI_COMM_WORLD);
                      std::vector<const float*> sources;
                      for (int r = 0; r < ranks_; ++r)
                        sources.push_back(received + static_cast<std::size_t>(r) * count_);
                      ops::tree_sum({shard, count_}, sources);
                    }});
    list.push_back({"all_reduce, MPI_Allreduce", [=, this] {
                      MPI_Allreduce(MPI_IN_PLACE, full, count * ranks_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                    }});
  }

  static void forget(std::vector<Contender>& contenders) {
    for (Contender& contender : contenders) contender.seconds = std::numeric_limits<double>::infinity();
  }

  // Every collective of ours beside the best of Open MPI's for the same job, and beside copying.
  void report(const std::vector<std::vector<Contender>>& large, const std::vector<Contender>& small,
              const std::vector<Figure>& identity) const {
    if (rank_ != 0) return;
    std::vector<Figure> figures;
    for (const std::vector<Contender>& contenders : large) report_rates(contenders, figures);
    figures.push_back({small[0].name, small[0].seconds * 1e6, "µs", "MPI_Allreduce", small[1].seconds * 1e6});
    figures.insert(figures.end(), identity.begin(), identity.end());
    const std::string text = options_.json ? figures_json(figures) : header() + figures_text(figures);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  void report_rates(const std::vector<Contender>& contenders, std::vector<Figure>& figures) const {
    const double bytes = static_cast<double>(options_.shard_bytes) * ranks_;
    const auto rate = [&](const Contender& contender) { return bytes / contender.seconds / 1e9; };
    const Contender& copy = contenders.front();
    for (const Contender& contender : contenders) {
      const std::string job = contender.name.substr(0, contender.name.find(','));
      const bool ours = contender.name.ends_with(", shm") || contender.name.ends_with(", mpi");
      if (!ours) {
        figures.push_back({contender.name, rate(contender), "GB/s", "", 0});
        continue;
      }
      const Contender* best = nullptr;
      for (const Contender& theirs : contenders) {
        if (!theirs.name.starts_with(job + ", MPI_")) continue;
        if (best == nullptr || theirs.seconds < best->seconds) best = &theirs;
      }
      require(best != nullptr, "bench: a contender without an opponent");
      figures.push_back({contender.name, rate(contender), "GB/s", best->name.substr(job.size() + 2), rate(*best)});
      figures.push_back({contender.name + " to copy", rate(contender), "GB/s", copy.name, rate(copy)});
    }
  }

  std::string header() const {
    return fmt::format(
        "{} ranks, {} bytes per rank; bandwidth = ranks × bytes ÷ time, the best of {} runs, each after a run of its "
        "own kind, or from memory\n",
        ranks_, options_.shard_bytes, options_.repeats);
  }

  BenchCollectivesOptions options_;
  std::unique_ptr<CommunicatorFactory> shm_factory_, mpi_factory_;
  CpuDevice device_;  // its allocator holds memory of the factory, which therefore comes first
  std::unique_ptr<Communicator> shm_, mpi_;
  Stream stream_owner_;
  StreamView stream_;
  int rank_ = 0, ranks_ = 1;
  std::size_t count_ = 0;
};

}  // namespace

int run_bench_collectives(const BenchCollectivesOptions& options) {
  if (options.shard_bytes == 0 || options.shard_bytes % 64 != 0 || options.shard_bytes > (std::size_t{1} << 30)) {
    throw ConfigError(fmt::format("bench collectives: a shard of {} bytes; expected a multiple of 64, at most 1 GiB",
                                  options.shard_bytes));
  }
  constexpr int kMostRepeats = 1'000'000;
  if (options.repeats < 1 || options.repeats > kMostRepeats) {
    throw ConfigError(fmt::format("bench collectives: {} repeats; expected 1 to {}", options.repeats, kMostRepeats));
  }
  return CollectivesBench(options).run();
}

}  // namespace tessera
