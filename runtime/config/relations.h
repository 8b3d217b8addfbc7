// What keys require of each other, as far as it does not depend on the number of ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job_config.h"

namespace tessera::config {

struct Relation {
  std::vector<std::string_view> keys;  // involved; the first is blamed
  std::string message, hint;
};

// The relations that do not hold. Relations between absent or senseless (0) values are left to the checks of single
// keys.
std::vector<Relation> broken_relations(const JobConfig& job);

// Why the batch does not divide into micro-batches of `lanes` lanes ("" where it does): names the three numbers and
// their product. lanes_name: "dp" or "lanes", whichever the user knows.
std::string batch_mismatch(const JobConfig& job, std::int64_t lanes, std::string_view lanes_name);
// dp such that lanes ÷ dp is a power of two, ascending: each rank then holds whole subtrees of the gradient sum.
std::vector<std::int64_t> dp_values_of_lanes(std::int64_t lanes);
struct LanesMismatch {
  std::string message, hint;  // "" where dp fits
};
LanesMismatch lanes_mismatch(std::int64_t lanes, std::int64_t dp);
// "4 or 8": the multiples of product around value.
std::string nearest_multiples(std::int64_t value, std::int64_t product);

}  // namespace tessera::config
