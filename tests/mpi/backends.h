// The backend that this run of mpi_conformance tests.
#pragma once

#include <memory>
#include <string>

#include "parallel/communicator.h"

namespace tessera::testing {

std::string& backend_under_test();

// Rank 0 prints "ready" once all ranks have made a call; ends only by a signal.
[[noreturn]] void reduce_forever();

}  // namespace tessera::testing
