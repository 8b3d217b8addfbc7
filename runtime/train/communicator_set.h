// Every communicator of one rank: made in canonical order by every rank, member or not, and destroyed in reverse.
//
// A communicator belongs to one stream, since one thread uses it at a time: where a group is used from two streams (world, dp) it has two.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "runtime/program/step_program.h"

namespace tessera {

class CommunicatorSet {
 public:
  // hooks: of every communicator; the channel is filled in with the name of its stream.
  CommunicatorSet(const MeshShape& mesh, CommunicatorFactory& factory, CommunicatorHooks hooks);
  ~CommunicatorSet();
  CommunicatorSet(const CommunicatorSet&) = delete;
  CommunicatorSet& operator=(const CommunicatorSet&) = delete;

  // This rank's communicator of a group ("world", "dp:0") for a stream; InternalError where it is not a member.
  Communicator& find(const std::string& group, StreamId stream) const;
  // From now on all communicators record their calls. While no stream has work.
  void attach(CollectiveLog& log);
  // f(communicator, stream) for those that this rank is a member of, in canonical order.
  void for_each(const std::function<void(Communicator&, StreamId)>& f) const;
  const std::vector<Group>& groups() const { return groups_; }

 private:
  struct Entry {
    StreamId stream;
    std::unique_ptr<Communicator> communicator;  // null where not a member
  };
  std::vector<Group> groups_;
  std::vector<Entry> entries_;
};

}  // namespace tessera
