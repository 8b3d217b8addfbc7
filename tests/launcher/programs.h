// The programs that these tests start, each with a blank behind it.
#pragma once

#include <string>

namespace tessera::test {

inline const std::string kTessera = TESSERA_BINARY_DIR "/tessera ";
inline const std::string kSessionProgram = TESSERA_BINARY_DIR "/tests/tessera_session_program ";
inline const std::string kWatchProgram = TESSERA_BINARY_DIR "/tests/tessera_watch_program ";

}  // namespace tessera::test
