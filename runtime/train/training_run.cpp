#include "runtime/train/training_run.h"

#include <fmt/format.h>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/train/agreement.h"
#include "runtime/train/chaos_files.h"

namespace tessera {

TrainingRun::TrainingRun(const TrainContext& given)
    : context(given),
      config(given.config),
      logical_rank(given.placement.logical_of_world.at(static_cast<std::size_t>(given.world_rank))),
      directory(given.run_directory),
      compute(given.device.create_stream("compute", StreamMode::kCompute)),
      gather(given.device.create_stream("gather", StreamMode::kQueue)),
      reduce(given.device.create_stream("reduce", StreamMode::kQueue)) {
  if (!config.chaos.empty()) {
    chaos = std::make_shared<Chaos>(config.chaos, context.world_rank, context.run_directory);
    chaos_files = make_chaos_file_system(files(), *chaos);
  }
  if (config.trace.steps) trace = std::make_shared<TraceRecorder>(*config.trace.steps);
}

TrainingRun::~TrainingRun() {
  // What streams still hold uses all that goes next.
  for (const Stream* stream : {&gather, &reduce, &compute}) {
    try {
      stream->view().synchronize();
    } catch (...) {
      // Said already, or about to be: the first error of a stream is the one that ended the job.
    }
  }
  if (context.on_log && calls != nullptr) context.on_log(nullptr);
}

FileSystem& TrainingRun::files() const {
  if (chaos_files != nullptr) return *chaos_files;
  return context.files != nullptr ? *context.files : *host_files;
}

RunFacts TrainingRun::facts() const {
  return {.config = config, .mesh = context.mesh, .loader = *loader, .numerics = numerics, .schedule = schedule};
}

bool TrainingRun::is_finished(const Progress& progress) const {
  return progress.step >= num_steps || (config.run.epochs && loader->epoch_of(progress.batch) >= *config.run.epochs);
}

void TrainingRun::agreed(const std::function<void()>& phase) const {
  run_agreed(world(), reduce.view(), context.placement, phase);
}

void TrainingRun::same_everywhere(std::uint64_t value, ExitCode code, const char* message) const {
  const std::uint64_t smallest = agree_min(value, "same");
  const std::uint64_t largest = ~agree_min(~value, "same");
  if (smallest != largest) throw AgreedError(code, 0, message);
}

std::uint64_t TrainingRun::agree_min(std::uint64_t value, const char* what) const {
  world()
      .all_reduce({.data = &value,
                   .count = 1,
                   .dtype = DType::kUInt64,
                   .reduce = ReduceOp::kMin,
                   .tag = {.what = what, .phase = "start"}},
                  reduce.view())
      .synchronize();
  return value;
}

std::string TrainingRun::hash() const {
  std::vector<std::uint64_t> parts(static_cast<std::size_t>(context.world_size()), 0);  // by logical rank
  parts[static_cast<std::size_t>(logical_rank)] = optimizer->state_hash(compute.view());
  world()
      .all_reduce({.data = parts.data(),
                   .count = parts.size(),
                   .dtype = DType::kUInt64,
                   .tag = {.what = "state_hash", .phase = "hash"}},
                  reduce.view())
      .synchronize();
  const ReplicatedSum total = sum_of_replicas(parts, replica_sets(config.fsdp, context.mesh));
  if (total.first >= 0) {
    throw AgreedError(
        ExitCode::kCollective, 0,
        fmt::format("replicas: ranks {} and {} hold the same shards, and their parameters or moments "
                    "differ; hint: one of them "
                    "computes or adds wrongly",
                    context.placement.world_of_logical(total.first), context.placement.world_of_logical(total.other)));
  }
  return hex64(total.sum);
}

void TrainingRun::say(const std::vector<std::string>& lines) const {
  for (const std::string& line : lines) {
    reporter->print(line);
    log::info(line);
  }
}

}  // namespace tessera
