// One unit on one rank: its shard, its full parameter while it is unsharded, its gradients on the way to a gradient shard.
#pragma once

#include <span>
#include <vector>

#include "fsdp/policy.h"
#include "fsdp/shard_layout.h"
#include "fsdp/unit_state.h"
#include "parallel/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/tensor_view.h"

namespace tessera {

class ShardedUnit {
 public:
  // Allocates the parameter shard (kParameters), contents undefined but padding zero. Where groups has no shard group, the shard is the full
  // parameter, and always full.
  ShardedUnit(const ModelSpec& model, const UnitSpec& unit, const ShardGroups& groups, Allocator& allocator,
              StreamView compute);

  const std::string& name() const { return unit_.name; }
  const UnitSpec& spec() const { return unit_; }
  const ShardLayout& layout() const { return layout_; }
  const std::vector<ShardSlice>& slices() const { return slices_; }  // of this rank's shard
  std::span<float> parameter_shard() const { return parameter_shard_.span<float>(); }

  // The shard was written by work enqueued on `stream`; the next unshard starts after it.
  void mark_written(StreamView stream) { written_ = stream.record(); }

  // Allocates the full parameter (kGathered) and starts the all_gather. With one shard the full parameter is the shard: nothing is allocated.
  void unshard(Communicator& group, StreamView gather, const CollectiveTag& tag);
  void wait_unshard(StreamView compute);
  void reshard();
  // View of a model parameter in the full parameter; only while full.
  TensorView parameter(int index) const;

  // Opens the next lane's full gradient (kGradients); its padding is zero, the rest undefined until assigned.
  void begin_lane(StreamView compute);
  // View of a parameter's gradient in the newest lane. lookup: the tied matrix's second segment, allocated at its first use.
  TensorView gradient(int index, bool lookup, StreamView compute);
  int num_partial_gradients() const { return static_cast<int>(partials_.size()); }
  // Adds the newest full gradient to the one before it and drops it.
  void merge_lanes(StreamView compute);
  // Starts the reduce_scatter of the one full gradient left, after what compute has enqueued.
  void reduce(Communicator& group, StreamView compute, StreamView reduce_stream, const CollectiveTag& tag);
  // Starts the all_reduce of the gradient shard over the ranks that hold the same one: after the reduce_scatter, or, where nothing is scattered,
  // of the one full gradient left.
  void reduce_replicas(Communicator& group, StreamView compute, StreamView reduce_stream, const CollectiveTag& tag);
  // Orders compute after both.
  void wait_reduce(StreamView compute);
  // After that: drops the full gradient and adds the two parts of a tied matrix. accumulate: then adds the result to the shard that was reduced
  // before.
  void finish_reduce(StreamView compute, bool accumulate);
  // Whether that computes anything, or gives back memory alone.
  bool finish_adds(bool accumulate) const { return accumulate || layout_.tied_slot >= 0; }
  std::span<float> gradient_shard() const;  // only while reduced
  void drop_gradient();
  GradientState gradient_state() const { return gradient_state_; }
  ParameterState parameter_state() const { return parameter_state_; }

 private:
  // A full gradient. The tied matrix's lookup segment comes at its first use.
  struct Partial {
    Buffer flat, lookup;
  };
  // The one full gradient left; reduce_stream comes after what compute has enqueued.
  Partial& begin_reduce(StreamView compute, StreamView reduce_stream);
  const ModelSpec& model_;
  UnitSpec unit_;
  ShardLayout layout_;
  int shard_;
  Allocator& allocator_;
  std::vector<ShardSlice> slices_;
  ParameterState parameter_state_ = ParameterState::kSharded;
  GradientState gradient_state_ = GradientState::kNone;
  Buffer parameter_shard_, full_;
  std::vector<Partial> partials_;
  Buffer gradient_shard_, lookup_shard_;
  Buffer reduced_before_;  // the sum over the step's earlier micro-batches, where each is reduced
  Event written_;
  Work gather_work_, reduce_work_;
};

}  // namespace tessera
