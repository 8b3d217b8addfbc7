// The training job of one rank, from a resolved config to the last step.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "parallel/communicator.h"
#include "parallel/mesh.h"
#include "parallel/teardown.h"
#include "runtime/base/error.h"
#include "runtime/config/job_config.h"
#include "runtime/config/load.h"
#include "runtime/device/device.h"
#include "runtime/train/memory_budget.h"

namespace tessera {

enum class ProgressMode : std::uint8_t { kPlain, kBar, kQuiet };  // kQuiet: no terminal output (tests, benches)

// Everything the launcher prepared. References outlive the call.
struct TrainContext {
  const JobConfig& config;
  ResolvedBatch batch;
  MeshShape mesh;
  Placement placement;
  int world_rank = 0;
  std::string host;
  std::string run_directory;     // exists, or can be created by rank 0
  std::string device_summary;    // for the header: "cpu, 2 threads, cpuset 0-1"
  std::string topology_summary;  // for the header: what mesh.topology describes
  int num_threads = 1;
  CommunicatorFactory&
      factory;  // not yet used: train() creates every group, in canonical order, and destroys them in reverse
  Device& device;
  MemoryBudget device_memory;   // of this rank; device.memory_limit may lower it
  FileSystem* files = nullptr;  // in which checkpoints lie; null: the host's
  ProgressMode progress = ProgressMode::kPlain;
  std::vector<std::string> allowed_changes;  // keys that a resumed run may change although they decide what is trained
  std::function<bool()>
      stop_requested;  // a signal asked this rank to stop; the decision is agreed once per step and evaluation batch
  // Called with an error that peers do not share, before anything is torn down (a teardown would wait for them): prints it and ends the
  // process (MPI_Abort). Where empty, the error is rethrown.
  std::function<void(std::exception_ptr)> on_fatal;
  // Where this rank is on its way out; train() walks it up to `communicators`. May be null.
  Teardown* teardown = nullptr;
  // Told of the collective log once it is open, and nullptr before it goes. May be empty.
  std::function<void(CollectiveLog*)> on_log;
  // Given the line on the deliberate fault behind what somebody else finds (chaos.h), where the job has any. May be empty.
  std::function<void(std::function<std::string(FoundBy)>)> on_chaos;
  // Called with its update before every attempt at a step, outside what counts as its time: for benches. May be empty.
  std::function<void(std::int64_t update)> before_step;

  int world_size() const { return mesh.num_ranks(); }
};

// Runs the job. Returns kDone, or kStopped where ranks agreed to stop on request and have saved. Errors are thrown: on return and on an agreed error
// (every rank throws the same one: kinds ConfigError, DataError, NonFiniteError found by all) streams are finished, a barrier has passed and the
// communicators are gone, so that the caller may finalise MPI; any other exception means that peers may be waiting.
ExitCode train(const TrainContext& context);

// Thrown by train() on every rank at once after the ranks agreed on an error of one of them: print on `rank` only, then leave in order.
class AgreedError final : public std::runtime_error {
 public:
  AgreedError(ExitCode code, int world_rank, const std::string& line)
      : std::runtime_error(line), exit_code(code), rank(world_rank) {}
  ExitCode exit_code;
  int rank;  // world rank that found it
};

}  // namespace tessera
