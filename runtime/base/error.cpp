#include "runtime/base/error.h"

#include <fmt/format.h>

namespace tessera {

std::string Error::line() const {
  if (hint_.empty()) return what();
  return fmt::format("{}; hint: {}", what(), hint_);
}

void require(bool condition, std::string_view what, std::source_location where) {
  if (condition) return;
  throw InternalError(fmt::format("internal: {} ({}:{})", what, where.file_name(), where.line()),
                      "this is a bug; please report it with the run's log", where);
}

}  // namespace tessera
