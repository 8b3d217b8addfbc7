// RUN/chaos/fault-K.json: which deliberate faults of a run directory have fired. A fault fires once: its rank makes the file before anything
// goes wrong, and a file that is there already says that an earlier start did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/job_config.h"

namespace tessera {

// Since the Unix epoch, of this host's clock.
std::int64_t unix_ns();

// "swap_collectives of rank 1 at step 5".
std::string describe(const ChaosFault& fault);

class FaultMarkers {
 public:
  FaultMarkers(const std::vector<ChaosFault>& faults, const std::string& run_directory)
      : faults_(faults), folder_(run_directory + "/chaos") {}

  const std::vector<ChaosFault>& faults() const { return faults_; }

  // Makes the file of fault `index`; false where it is there. DeviceError where it cannot be made.
  bool fire(std::size_t index) const;
  // Unix time, ns, at which it fired; nullopt where it did not. ConfigError where the file is of another fault: the list was changed.
  std::optional<std::int64_t> fired_at(std::size_t index) const;

 private:
  std::string path(std::size_t index) const;

  std::vector<ChaosFault> faults_;
  std::string folder_;
};

}  // namespace tessera
