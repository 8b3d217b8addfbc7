// Text from a checkpoint: its weights on any number of ranks, and a program of one token run over and over. Reads parameters alone and writes nothing.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mesh.h"
#include "parallel/teardown.h"
#include "runtime/base/error.h"
#include "runtime/config/job_config.h"
#include "runtime/config/load.h"
#include "runtime/device/device.h"
#include "runtime/ops/isa.h"
#include "runtime/train/memory_budget.h"
#include "runtime/train/sampler.h"

namespace tessera {

// Everything the launcher prepared. References outlive the call.
struct GenerateContext {
  const JobConfig& config;  // of the model; fsdp and collectives say how these ranks hold and exchange it
  ResolvedBatch batch;      // of one sequence a rank
  MeshShape mesh;
  Placement placement;
  int world_rank = 0;
  int num_threads = 1;
  CommunicatorFactory& factory;  // not yet used
  Device& device;
  MemoryBudget device_memory;                       // of this rank
  std::string checkpoint;                           // the checkpoint's folder
  Isa instruction_set;                              // the same on all ranks: products depend on it
  std::vector<std::vector<std::uint32_t>> prompts;  // tokens, the same on all ranks; none is empty
  SamplerOptions options;                           // on_token is not used
  // Told of each token that continues prompt n, once it is known. Every rank has them all; may be empty.
  std::function<void(std::size_t prompt, std::uint32_t token)> on_token;
  std::function<void(std::size_t prompt)> on_end;
  // As in TrainContext.
  std::function<void(std::exception_ptr)> on_fatal;
  Teardown* teardown = nullptr;
};

// Continues the prompts one after the other. The tokens depend on weights, prompts and options alone, never on the number of ranks. Errors leave as
// those of train() do (trainer.h).
void generate(const GenerateContext& context);

}  // namespace tessera
