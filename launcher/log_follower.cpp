#include "launcher/log_follower.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "runtime/train/run_directory.h"

namespace tessera {

std::string teed_line(int rank, const std::string& line) {
  std::string text = line;
  const auto begin = text.find(fmt::format("[rank {}/", rank));
  const auto end = begin == std::string::npos ? begin : text.find("] ", begin);
  if (end != std::string::npos) text.erase(begin, end + 2 - begin);
  return fmt::format("[rank {}] {}\n", rank, text);
}

LogFollower::LogFollower(const std::string& run_directory, const std::vector<int>& ranks,
                         std::function<void(const std::string&)> write)
    : write_(std::move(write)) {
  for (const int rank : ranks) {
    File file{.rank = rank, .path = RunDirectory(run_directory).log(rank)};
    struct stat found {};
    if (::stat(file.path.c_str(), &found) == 0) file.identity = {found.st_dev, found.st_ino};
    files_.push_back(std::move(file));
  }
}

LogFollower::~LogFollower() {
  for (File& file : files_) close(file);
}

void LogFollower::poll() {
  for (File& file : files_) {
    read(file);
    reopen(file);
    read(file);
  }
}

void LogFollower::finish() {
  poll();
  for (File& file : files_) {
    if (!file.rest.empty()) write_(teed_line(file.rank, file.rest));
    file.rest.clear();
  }
}

void LogFollower::read(File& file) const {
  if (file.descriptor < 0) return;
  std::array<char, 65536> part;
  for (;;) {
    const ssize_t got = ::read(file.descriptor, part.data(), part.size());
    if (got <= 0) break;
    file.rest.append(part.data(), static_cast<std::size_t>(got));
  }
  std::string lines;
  std::size_t at = 0;
  for (auto end = file.rest.find('\n'); end != std::string::npos; end = file.rest.find('\n', at)) {
    lines += teed_line(file.rank, file.rest.substr(at, end - at));
    at = end + 1;
  }
  file.rest.erase(0, at);
  if (!lines.empty()) write_(lines);
}

void LogFollower::reopen(File& file) {
  struct stat found {};
  if (::stat(file.path.c_str(), &found) != 0 || file.identity == std::pair(found.st_dev, found.st_ino)) return;
  read(file);  // what came after the last look
  if (!file.rest.empty()) write_(teed_line(file.rank, file.rest));
  close(file);
  file.descriptor = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat opened {};
  if (file.descriptor >= 0 && ::fstat(file.descriptor, &opened) == 0) file.identity = {opened.st_dev, opened.st_ino};
}

void LogFollower::close(File& file) const {
  if (file.descriptor >= 0) ::close(file.descriptor);
  file.descriptor = -1;
  file.rest.clear();
}

}  // namespace tessera
