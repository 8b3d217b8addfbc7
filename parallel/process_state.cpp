#include "parallel/process_state.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>

#include "runtime/base/hash.h"

namespace tessera {

std::optional<ProcessState> process_state(std::int64_t pid, const std::string& proc) {
  std::ifstream file(fmt::format("{}/{}/stat", proc, pid));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The program's name stands in parentheses and may hold any character, so fields are counted from the last one.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState result;
  fields >> result.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> result.start_time;
  if (!fields) return std::nullopt;
  return result;
}

bool may_exist(std::int64_t pid) {
  // 0 and below name process groups.
  if (pid <= 0 || pid > std::numeric_limits<pid_t>::max()) return false;
  return kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

std::uint64_t pid_domain() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat space {};
  if (!std::getline(file, boot) || stat("/proc/self/ns/pid", &space) != 0) return 0;
  return hash_string(boot, space.st_ino);
}

}  // namespace tessera
