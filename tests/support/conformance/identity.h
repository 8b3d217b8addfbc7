// What every backend does with members that make different calls.
#pragma once

#include <vector>

#include "tests/support/conformance/conformance.h"

namespace tessera::testing {

// Part of conformance_cases().
std::vector<ConformanceCase> identity_cases();

}  // namespace tessera::testing
