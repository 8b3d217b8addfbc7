#include "tests/support/mpirun.h"

#include <fmt/format.h>
#include <unistd.h>

namespace tessera::test {

std::string mpirun(int num_ranks, const std::string& options) {
  const char* root = ::geteuid() == 0 ? "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " : "";
  return fmt::format("{}mpirun --quiet --oversubscribe {} -n {} ", root, options, num_ranks);
}

}  // namespace tessera::test
