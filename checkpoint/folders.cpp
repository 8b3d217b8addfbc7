#include "checkpoint/folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <random>

#include "runtime/base/hash.h"

namespace tessera {
namespace {

constexpr std::string_view kStepPrefix = "step-", kSavingPrefix = ".saving-", kDeletingPrefix = ".deleting-",
                           kSetAsidePrefix = ".set-aside-";

std::string attempt_name(std::string_view prefix, std::int64_t step, std::uint64_t nonce) {
  return fmt::format("{}{:08}-{}", prefix, step, hex64(nonce));
}

// The step in front of `text`, with as many digits as we write.
std::optional<std::int64_t> leading_step(std::string_view text) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || step < 0 ||
      fmt::format("{:08}", step) != text.substr(0, static_cast<std::size_t>(end - text.data())))
    return std::nullopt;
  return step;
}

}  // namespace

std::string step_folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::string saving_folder_name(std::int64_t step, std::uint64_t nonce) {
  return attempt_name(kSavingPrefix, step, nonce);
}

std::optional<std::int64_t> step_of_folder(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = leading_step(name.substr(kStepPrefix.size()));
  return step && step_folder_name(*step) == name ? step : std::nullopt;
}

std::optional<std::int64_t> step_of_unfinished(std::string_view name) {
  return name.starts_with(kSavingPrefix) ? leading_step(name.substr(kSavingPrefix.size())) : std::nullopt;
}

std::uint64_t make_nonce() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::vector<std::int64_t> list_steps(FileSystem& files, const std::string& directory) {
  std::vector<std::int64_t> steps;
  if (!files.exists(directory)) return steps;
  for (const DirectoryEntry& entry : files.list(directory))
    if (const auto step = step_of_folder(entry.name); step && entry.is_directory) steps.push_back(*step);
  std::ranges::sort(steps);  // names of more than eight digits do not sort as numbers do
  return steps;
}

std::vector<std::string> remove_leftovers(FileSystem& files, const std::string& directory) {
  std::vector<std::string> removed;
  if (!files.exists(directory)) return removed;
  for (const DirectoryEntry& entry : files.list(directory)) {
    if (!entry.name.starts_with(kSavingPrefix) && !entry.name.starts_with(kDeletingPrefix)) continue;
    files.remove(fmt::format("{}/{}", directory, entry.name));
    removed.push_back(entry.name);
  }
  return removed;
}

std::string set_aside(FileSystem& files, const std::string& directory, std::int64_t step) {
  const std::string name = attempt_name(kSetAsidePrefix, step, make_nonce());
  files.rename(fmt::format("{}/{}", directory, step_folder_name(step)), fmt::format("{}/{}", directory, name));
  files.sync_directory(directory);
  return name;
}

void delete_checkpoints(FileSystem& files, const std::string& directory, const std::vector<std::int64_t>& steps) {
  if (steps.empty()) return;
  std::vector<std::string> doomed;
  for (const std::int64_t step : steps) {
    doomed.push_back(fmt::format("{}/{}", directory, attempt_name(kDeletingPrefix, step, make_nonce())));
    files.rename(fmt::format("{}/{}", directory, step_folder_name(step)), doomed.back());
  }
  // The new names first: a crash must not keep the old name and lose the files.
  files.sync_directory(directory);
  for (const std::string& folder : doomed) files.remove(folder);
}

}  // namespace tessera
