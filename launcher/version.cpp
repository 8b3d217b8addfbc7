#include "launcher/version.h"

#include <fmt/format.h>

namespace tessera {

std::string version() {
  return TESSERA_VERSION;
}

std::string version_line() {
  return "tessera " + version();
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string build_type() {
  return TESSERA_BUILD_TYPE;
}

}  // namespace tessera
