#include "runtime/program/parameter_spec.h"

#include <set>

namespace tessera {

std::int64_t ModelSpec::num_parameters() const {
  std::int64_t total = 0;
  for (const ParameterSpec& p : parameters) total += p.shape.num_elements();
  return total;
}

std::int64_t ModelSpec::num_parameters_in_products() const {
  // A matrix multiplies every token unless it is only looked up: the token table counts where it is tied to the head, positions never.
  std::int64_t total = 0;
  std::set<int> seen;
  for (std::size_t s = 1; s < segments.size(); ++s) {
    for (const int index : segments[s].parameters) {
      const ParameterSpec& p = parameters[static_cast<std::size_t>(index)];
      if (p.shape.rank() == 2 && seen.insert(index).second) total += p.shape.num_elements();
    }
  }
  return total;
}

}  // namespace tessera
