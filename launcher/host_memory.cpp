#include "launcher/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number a file begins with; kNoLimit where there is none ("max", or no such file).
std::int64_t number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t number = kNoLimit;
  if (!(stream >> number)) return kNoLimit;
  return number;
}

std::int64_t machine_bytes(const fs::path& root) {
  std::ifstream info(root / "proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemTotal:") return kibibytes << 10;
  }
  return kNoLimit;
}

// The least limit on the way from the group up to the root of its hierarchy. A container may see its own group as that root, under a path that is
// not there: then the root's limit is what counts.
std::int64_t least_limit(const fs::path& hierarchy, const fs::path& group, const char* file) {
  std::int64_t least = number_in(hierarchy / file);
  fs::path at = hierarchy;
  for (const fs::path& level : group.relative_path()) {
    at /= level;
    least = std::min(least, number_in(at / file));
  }
  return least;
}

std::int64_t control_group_bytes(const fs::path& root) {
  std::int64_t least = kNoLimit;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", or "9:memory:/docker/4f"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, least_limit(root / "sys/fs/cgroup", group, "memory.max"));
    if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, least_limit(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

std::int64_t host_memory_bytes(const fs::path& root) {
  const std::int64_t bytes = std::min(machine_bytes(root), control_group_bytes(root));
  return bytes == kNoLimit ? 0 : bytes;
}

}  // namespace tessera
