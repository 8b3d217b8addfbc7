// The files that a pattern names.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// The matches of a shell pattern (*, ?, [...]), sorted by bytes; a name without wildcards is itself. DataError where
// nothing matches.
std::vector<std::string> expand_files(const std::string& pattern);

}  // namespace tessera
