// A verdict as JSON: the schema is in docs/collective-log.md.
#pragma once

#include <string>

#include "parallel/collective_verdict.h"

namespace tessera {

std::string to_json(const Verdict& verdict);

}  // namespace tessera
