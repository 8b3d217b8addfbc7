// From what the ranks recorded to the files of a trace.
#pragma once

#include <string>

#include "parallel/communicator.h"
#include "parallel/mesh.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/trace_recorder.h"

namespace tessera {

// Of one rank.
struct TraceOwner {
  std::string run;  // 16 hex digits
  int world_rank = 0;
  Coordinates at;
  std::string host;
};

// Puts the clocks of all ranks together, writes each rank's file and then, on rank 0, the merged one; takes the recorder's
// spans. Every rank calls it, while its streams are idle; `stream`: the world communicator's. AgreedError (trainer.h), of
// kind DeviceError, where a file cannot be written.
void write_trace(TraceRecorder& recorder, const TraceOwner& owner, const RunDirectory& directory, Communicator& world,
                 StreamView stream, const Placement& placement);

}  // namespace tessera
