#include "runtime/train/fault_markers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace tessera {
namespace {

std::string content_of(const ChaosFault& fault, std::int64_t unix_ns) {
  return nlohmann::ordered_json{
             {"rank", fault.rank}, {"step", fault.step}, {"fault", fault.fault}, {"unix_ns", unix_ns}}
             .dump() +
         "\n";
}

}  // namespace

std::int64_t unix_ns() {
  using std::chrono::nanoseconds;
  return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string describe(const ChaosFault& fault) {
  return fmt::format("{} of rank {} at step {}", fault.fault, fault.rank, fault.step);
}

std::string FaultMarkers::path(std::size_t index) const {
  return fmt::format("{}/fault-{}.json", folder_, index);
}

bool FaultMarkers::fire(std::size_t index) const {
  std::error_code code;
  std::filesystem::create_directories(folder_, code);
  const int file = ::open(path(index).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0 && errno == EEXIST) return false;
  // One write: whoever finds the file finds all of it, or nothing yet.
  const std::string text = content_of(faults_.at(index), unix_ns());
  const bool written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (file >= 0) ::close(file);
  if (!written) throw DeviceError(fmt::format("{}: {}", path(index), std::strerror(error)));
  return true;
}

std::optional<std::int64_t> FaultMarkers::fired_at(std::size_t index) const {
  std::ifstream file(path(index));
  if (!file) return std::nullopt;
  const ChaosFault& fault = faults_.at(index);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return std::nullopt;  // being written
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number_integer() ? json[key].get<std::int64_t>() : -1;
  };
  const std::string name = json.contains("fault") && json["fault"].is_string() ? json["fault"] : "?";
  if (name != fault.fault || number("rank") != fault.rank || number("step") != fault.step) {
    throw ConfigError(fmt::format("chaos[{}]: {}, but {} says that {} of rank {} at step {} fired", index,
                                  describe(fault), path(index), name, number("rank"), number("step")),
                      "another run directory, or remove the file");
  }
  return number("unix_ns");
}

}  // namespace tessera
