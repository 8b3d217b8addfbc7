// What a job says otherwise than it did when it was first started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job_config.h"

namespace tessera {

struct KeyChange {
  std::string key;         // dotted path
  std::string saved, now;  // as in a job file; "not set" where the key has no value
  friend bool operator==(const KeyChange&, const KeyChange&) = default;
};

// Keys whose values differ, in ascending order.
std::vector<KeyChange> changed_keys(const JobConfig& saved, const JobConfig& now);

// Whether a resumed run may give this key another value without being asked: where the run computes, what it writes and when, when it ends, and
// the learning rate. Everything else decides what is trained.
bool may_change_on_resume(std::string_view key);

}  // namespace tessera
