// Which world rank a member of a group is, as far as the collective logs of a run tell. Calls name roots, senders and
// receivers by group rank; whoever reads of them knows world ranks.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/collective_log.h"

namespace tessera {

class GroupMembers {
 public:
  explicit GroupMembers(const std::vector<RankLog>& logs);

  // -1 where no log tells.
  int world_rank(const std::string& group, int position) const;
  // A call of the group with world ranks for root and peer. False, and the call as it was, where one is not known.
  bool to_world(const std::string& group, CollectiveIdentity& identity) const;

 private:
  void place_ranks_without_a_log(const std::vector<RankLog>& logs);

  std::map<std::pair<std::string, int>, int> world_of_member_;  // members that have a log
  std::vector<int> world_of_logical_;
  std::map<std::string, std::vector<int>> logical_of_group_;
};

// "all_gather block.3 forward, step 7, 1024 fp32"; by_group_rank: root and peer are, and the text says so.
std::string describe(const CollectiveIdentity& identity, bool by_group_rank);
// See differing_fields of collective_identity.h.
std::vector<std::string> differing_fields(const CollectiveIdentity& mine, const CollectiveIdentity& other,
                                          bool by_group_rank);

}  // namespace tessera
