// A step program: the ordered list of instructions one rank executes in one optimizer step (or one evaluation, or one generated token).
// Plain data: built by pure functions, printed, compared, counted, and walked by the executor. There are no hooks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Which in-order queue of the device an instruction belongs to.
//   compute: the model and the optimizer.
//   gather:  all_gathers; buys overlap of the next unit's parameters with the current unit's products.
//   reduce:  reduce_scatters; buys overlap of a unit's gradient sum with the backward of the units before it.
enum class StreamId : std::uint8_t { kCompute, kGather, kReduce, kPipe };
inline constexpr int kNumStreams = 4;
std::string_view name_of(StreamId stream);

enum class OpCode : std::uint8_t {
  kAgreeTokens,        // all_reduce: valid targets of the step
  kUnshard,            // allocate the unit's full parameter, all_gather into it
  kWaitUnshard,        // compute may read the full parameter
  kReshard,            // drop the full parameter
  kForward,            // a segment of a micro-batch; saves activations
  kHeadLoss,           // the head segment, forward and backward in one: the loss scale is known before
  kBackward,           // a segment of a micro-batch; the lane's first micro-batch assigns gradients, later ones add
  kOpenGradient,       // allocate the unit's full gradient of the next lane
  kMergeLanes,         // join the two newest partial gradients of the unit: a node of the lane tree
  kReduce,             // reduce_scatter the unit's full gradient over the ranks that share a copy of the parameters
  kReduceReplicas,     // all_reduce the gradient shard over the ranks that hold the same one
  kDropGradient,       // drop the unit's gradient unused: all its parameters are frozen
  kWaitReduce,         // the gradient shard is there; drop the full gradient; a tied matrix adds its two parts
  kAgreeNorm,          // all_reduce: gradient norm, losses, finiteness, stop
  kUpdate,             // the optimizer, on shards
  kForwardOnly,        // evaluation forward of a segment; saves nothing
  kEvaluateHead,       // the head segment, losses only
  kAgreeLoss,          // all_reduce: losses of an evaluation batch
  kLogits,             // the head segment for one position
  kRehearseBroadcast,  // broadcast: of nothing that anybody reads (chaos)
};
std::string_view name_of(OpCode op);

struct Instruction {
  OpCode op = OpCode::kUpdate;
  StreamId stream = StreamId::kCompute;
  int unit = -1;
  int segment = -1;
  int micro_batch = -1;  // of this rank's micro-batches in the step
  bool accumulate =
      false;  // kHeadLoss, kBackward: add to the lane's gradient instead of assigning; kWaitReduce: to the shard
  std::string group;  // of a collective: "dp:0", "world"
  std::string phase;  // "forward", "backward", "update", "evaluate", "generate"
  std::vector<int>
      waits;  // indices of earlier instructions on other streams that must be complete before this one starts
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// "all_gather", "reduce_scatter", "all_reduce", or "" for compute.
std::string_view collective_of(OpCode op);

struct StepProgram {
  std::string title;  // "step program of logical rank 0: dp 2, pp 1, tp 1; 3 units …"
  std::vector<std::string> unit_names;
  std::vector<std::string> segment_names;
  std::vector<Instruction> instructions;

  int count(OpCode op) const;
  // "unshard block.0", "forward block.0 micro 0", "agree norm"; the words of the printed list.
  std::string text(const Instruction& instruction) const;
  // The words of every instruction, in order: what tests compare with literal lists.
  std::vector<std::string> texts() const;
  // The whole program as an aligned table.
  std::string str() const;
  std::string json() const;
};

}  // namespace tessera
