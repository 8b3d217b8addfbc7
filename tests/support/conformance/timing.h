// What every backend tells a CallRecorder.
#pragma once

#include <vector>

#include "tests/support/conformance/conformance.h"

namespace tessera::testing {

// Part of conformance_cases().
std::vector<ConformanceCase> timing_cases();

}  // namespace tessera::testing
