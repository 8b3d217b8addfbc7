// Programs under a real mpirun.
#pragma once

#include <string>

#include "tests/support/run_command.h"

namespace tessera::test {

// "mpirun --quiet --oversubscribe -n N " and what root needs besides. options: more of mpirun's own.
std::string mpirun(int num_ranks, const std::string& options = "");

}  // namespace tessera::test
