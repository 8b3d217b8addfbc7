#include "tools/bench_fingerprints.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <memory>
#include <string>

#include "parallel/collective_log.h"
#include "parallel/shm/shm_communicator.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/config/load.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/train/plan.h"
#include "runtime/train/trainer.h"
#include "tools/bench_job.h"

namespace tessera {
namespace {

constexpr int kCallsPerRound = 500;
constexpr std::uint64_t kWords = 32;  // of the call that is timed, per rank

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

// A directory that all ranks share and rank 0 owns.
class SharedDirectory {
 public:
  SharedDirectory() {
    if (world_rank() == 0) own_ = std::make_unique<TemporaryDirectory>();
    std::array<char, 4096> text{};
    if (own_) own_->path().copy(text.data(), text.size() - 1);
    MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = text.data();
  }
  ~SharedDirectory() {
    // With an exception on its way the others may be anywhere.
    if (std::uncaught_exceptions() == 0) MPI_Barrier(MPI_COMM_WORLD);
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::unique_ptr<TemporaryDirectory> own_;
  std::string path_;
};

struct Level {
  std::string name;
  FingerprintLevel level;
  bool detail = false;  // a barrier and two all_gathers before each call
  std::unique_ptr<Communicator> communicator = nullptr;
  double ns = std::numeric_limits<double>::infinity();  // per call, of the slowest rank, at best
};

std::vector<Level> measure_levels(int repeats, const SharedDirectory& directory) {
  const auto factory = make_shm_factory(Placement::canonical(world_size()));
  const Group world = canonical_groups({.dp = world_size()})[0];
  CpuDevice device;
  const Stream owner = device.create_stream("bench", StreamMode::kCompute);
  const StreamView stream = owner.view();
  LogOwner log_owner = LogOwner::this_process();
  log_owner.world_rank = world_rank();
  log_owner.world_size = world_size();
  const auto log = CollectiveLog::create(directory / fmt::format("rank-{:05}.log", world_rank()), log_owner);
  std::vector<Level> levels;
  levels.push_back({"off", FingerprintLevel::kOff});
  levels.push_back({"log", FingerprintLevel::kLog});
  levels.push_back({"step", FingerprintLevel::kStep});
  levels.push_back({"strict", FingerprintLevel::kStrict});
  levels.push_back({"barrier and two all_gathers", FingerprintLevel::kOff, true});
  for (Level& level : levels) {
    level.communicator = factory->create(world, {.channel = level.name.substr(0, 6), .fingerprint = level.level});
    level.communicator->attach(*log);
  }
  const auto ranks = static_cast<std::size_t>(world_size());
  std::vector<float> input(kWords), output(kWords * ranks);
  const auto gather = [&](Communicator& communicator) {
    communicator.all_gather({.input = input.data(),
                             .output = output.data(),
                             .count = kWords,
                             .tag = {.what = "block.3", .phase = "backward", .step = 7, .micro_batch = 0}},
                            stream);
  };
  for (int round = 0; round < repeats; ++round) {
    for (Level& level : levels) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = monotonic_seconds();
      for (int call = 0; call < kCallsPerRound; ++call) {
        if (level.detail) {
          level.communicator->barrier({}, stream);
          gather(*level.communicator);
          gather(*level.communicator);
        }
        gather(*level.communicator);
      }
      if (level.level == FingerprintLevel::kStep) level.communicator->compare_history(round, stream);
      stream.synchronize();
      double ns = (monotonic_seconds() - start) * 1e9 / kCallsPerRound;
      MPI_Allreduce(MPI_IN_PLACE, &ns, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      level.ns = std::min(level.ns, ns);
    }
  }
  for (Level& level : levels) level.communicator.reset();
  return levels;
}

struct StepCost {
  double seconds = 0;  // the fastest step
  int calls = 0;
};

// Trains with the fingerprints off.
StepCost measure_step(JobConfig config, std::int64_t steps, const SharedDirectory& directory) {
  const std::string tokens = directory / (config.run.name + ".bin");
  if (world_rank() == 0) write_random_tokens(tokens, num_tokens_for(config, steps), config.model.vocab_size);
  MPI_Barrier(MPI_COMM_WORLD);
  prepare_job(config, tokens, steps);
  config.collectives.fingerprint = "off";
  const auto factory = make_shm_factory(Placement::canonical(world_size()));
  CpuDevice device;
  const ResolvedBatch batch = resolve(config, world_size());
  const MeshShape mesh{.dp = world_size()};
  const TrainContext context{.config = config,
                             .batch = batch,
                             .mesh = mesh,
                             .placement = Placement::canonical(world_size()),
                             .world_rank = world_rank(),
                             .host = "localhost",
                             .run_directory = directory / config.run.name,
                             .device_summary = "cpu",
                             .factory = *factory,
                             .device = device,
                             .progress = ProgressMode::kQuiet};
  train(context);
  MPI_Barrier(MPI_COMM_WORLD);
  StepCost cost;
  const Plan plan = make_plan(config, batch, mesh, 0, 1);
  for (const Instruction& i : plan.program.instructions) cost.calls += collective_of(i.op).empty() ? 0 : 1;
  if (world_rank() == 0) {
    const std::vector<double> seconds = step_seconds(directory / (config.run.name + "/metrics.jsonl"), steps / 3);
    cost.seconds = *std::min_element(seconds.begin(), seconds.end());
  }
  return cost;
}

}  // namespace

std::vector<Figure> measure_fingerprints(int repeats, bool large) {
  const SharedDirectory directory;
  const std::vector<Level> levels = measure_levels(repeats, directory);
  std::vector<Figure> figures;
  for (const Level& level : levels) {
    figures.push_back({fmt::format("call with fingerprint {}", level.name), level.ns, "ns",
                       &level == &levels.front() ? "" : "off", levels.front().ns});
  }
  const auto add_shares = [&](JobConfig config, const std::string& name, std::int64_t steps) {
    config.run.name = name;
    const StepCost step = measure_step(config, steps, directory);
    for (const Level& level : levels) {
      if (&level == &levels.front()) continue;
      const double added = std::max(0.0, level.ns - levels.front().ns) * step.calls;
      figures.push_back({fmt::format("{}, {} calls a step: {} adds", name, step.calls, level.name), added / 1e3, "µs",
                         "step", step.seconds * 1e6});
    }
  };
  JobConfig tiny = tiny_model();
  if (*tiny.reproducibility.lanes % world_size() != 0) {  // one lane to a rank, and as much work in each as before
    tiny.batch.global_batch_size = tiny.batch.micro_batch_size * world_size();
    tiny.reproducibility.lanes = world_size();
  }
  add_shares(tiny, "tiny", 300);
  if (large) {
    JobConfig config = gpt2_124m();
    config.batch.global_batch_size = 4 * world_size();
    add_shares(config, "gpt2-124m", 4);
  }
  return figures;
}

}  // namespace tessera
