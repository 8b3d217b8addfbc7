#include "runtime/train/metrics_file.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/train/run_directory.h"

namespace tessera {
namespace {

// Which events are of the part of the run before `at`. An evaluation after that step is made again: one that a stop cut short left no event.
class Before {
 public:
  explicit Before(const Progress& at) : at_(at) {}
  bool holds(const nlohmann::json& event) {
    const std::int64_t step = event.value("step", std::int64_t{0});
    const std::string kind = event.value("kind", "step");
    if (kind == "validation") return step < at_.step;
    // It names the update that was tried; whether the batch it consumed is among those of `at` only their number tells.
    if (kind == "skip") return ++num_skips_ <= at_.skipped;
    return step <= at_.step;
  }

 private:
  const Progress& at_;
  std::int64_t num_skips_ = 0;
};

}  // namespace

void cut_metrics(const std::string& path, const Progress& at) {
  std::ifstream file(path);
  if (!file) throw DeviceError(fmt::format("{}: cannot be read", path));
  Before before(at);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_object() && before.holds(event)) kept += line + "\n";
  }
  write_file(path, kept);
}

}  // namespace tessera
