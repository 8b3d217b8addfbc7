#include "runtime/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/train/agreement.h"
#include "runtime/train/trace_clock.h"
#include "runtime/train/trace_file.h"

namespace tessera {
namespace {

// The time 0 of the trace: the first moment that any rank recorded, on rank 0's clock.
std::int64_t agree_origin(const std::vector<TraceSpan>& spans, Communicator& world, StreamView stream) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const TraceSpan& span : spans) origin = std::min(origin, span.begin_ns);
  world
      .all_reduce({.data = &origin,
                   .count = 1,
                   .dtype = DType::kInt64,
                   .reduce = ReduceOp::kMin,
                   .tag = {.what = "origin", .phase = "trace"}},
                  stream)
      .synchronize();
  return origin;
}

void create_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw DeviceError(fmt::format("{}: {}", path, error.message()));
}

}  // namespace

void write_trace(TraceRecorder& recorder, const TraceOwner& owner, const RunDirectory& directory, Communicator& world,
                 StreamView stream, const Placement& placement) {
  RankTrace trace = {.header = {.run = owner.run,
                                .rank = owner.world_rank,
                                .world_size = world.size(),
                                .at = owner.at,
                                .host = owner.host,
                                .steps = recorder.steps(),
                                .num_dropped_steps = recorder.num_dropped()},
                     .spans = recorder.take()};
  const ClockOffset clock = align_clocks(world, stream, placement.logical_of_world.front(), clock_domain());
  for (TraceSpan& span : trace.spans) {
    span.begin_ns += clock.offset_ns;
    span.end_ns += clock.offset_ns;
  }
  trace.header.clock = clock;
  trace.header.origin_ns = agree_origin(trace.spans, world, stream);
  for (TraceSpan& span : trace.spans) {
    span.begin_ns -= trace.header.origin_ns;
    span.end_ns -= trace.header.origin_ns;
  }

  run_agreed(world, stream, placement, [&] {
    create_folder(directory.trace_folder());
    write_rank_trace(directory.trace(owner.world_rank), trace);
  });
  run_agreed(world, stream, placement, [&] {
    if (owner.world_rank != 0) return;
    std::vector<std::string> paths;
    for (int rank = 0; rank < world.size(); ++rank) paths.push_back(directory.trace(rank));
    merge_traces(paths, directory.merged_trace());
  });
}

}  // namespace tessera
