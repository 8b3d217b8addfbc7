// Which Tessera this is.
#pragma once

#include <string>

namespace tessera {

std::string version();       // "0.1.0"
std::string version_line();  // "tessera 0.1.0"
std::string compiler();      // "GCC 12.2.0"
std::string build_type();    // "Release"

}  // namespace tessera
