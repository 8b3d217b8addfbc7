#include "runtime/train/communicator_set.h"

#include "runtime/base/error.h"

namespace tessera {

CommunicatorSet::CommunicatorSet(const MeshShape& mesh, CommunicatorFactory& factory, CommunicatorHooks hooks)
    : groups_(canonical_groups(mesh)) {
  check_canonical(mesh, groups_);
  const auto create = [&](const Group& group, StreamId stream) {
    hooks.channel = std::string(name_of(stream));
    entries_.push_back({stream, factory.create(group, hooks)});
  };
  for (const Group& group : groups_) {
    switch (group.axis) {
      case Axis::kDp:
        if (mesh.shard_size > 0) break;  // its parts do what it would do
        [[fallthrough]];
      case Axis::kWorld:
      case Axis::kShard:
        create(group, StreamId::kGather);
        create(group, StreamId::kReduce);
        break;
      case Axis::kReplica: create(group, StreamId::kReduce); break;
      case Axis::kTp: create(group, StreamId::kCompute); break;
      case Axis::kPp: create(group, StreamId::kPipe); break;
    }
  }
}

CommunicatorSet::~CommunicatorSet() {
  while (!entries_.empty()) entries_.pop_back();
}

void CommunicatorSet::attach(CollectiveLog& log) {
  for_each([&](Communicator& communicator, StreamId) { communicator.attach(log); });
}

void CommunicatorSet::for_each(const std::function<void(Communicator&, StreamId)>& f) const {
  for (const Entry& entry : entries_) {
    if (entry.communicator) f(*entry.communicator, entry.stream);
  }
}

Communicator& CommunicatorSet::find(const std::string& group, StreamId stream) const {
  for (const Entry& entry : entries_) {
    if (entry.communicator && entry.stream == stream && entry.communicator->group().name() == group)
      return *entry.communicator;
  }
  throw InternalError("no communicator of group " + group + " on stream " + std::string(name_of(stream)));
}

}  // namespace tessera
