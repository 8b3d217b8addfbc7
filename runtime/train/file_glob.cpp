#include "runtime/train/file_glob.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/base/error.h"

namespace tessera {

std::vector<std::string> expand_files(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  const int error = errno;
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::error_code ignored;
  // A file may be called `data[1].bin`.
  if (paths.empty() && std::filesystem::exists(pattern, ignored)) paths.push_back(pattern);
  if (paths.empty() && result == GLOB_ABORTED) {
    throw DataError(fmt::format("{}: cannot read a directory: {}", pattern, std::strerror(error)));
  }
  if (paths.empty()) {
    const bool is_pattern = pattern.find_first_of("*?[") != std::string::npos;
    throw DataError(fmt::format("{}: {}", pattern, is_pattern ? "no file matches" : "no such file"),
                    std::filesystem::path(pattern).is_absolute()
                        ? std::string()
                        : fmt::format("paths are relative to {}", std::filesystem::current_path().string()));
  }
  // glob(3) would sort by locale, which hosts need not share.
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace tessera
