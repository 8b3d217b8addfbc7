#include "checkpoint/load_latest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

std::string encode(const LatestCheckpoint& latest) {
  Json skipped = Json::array();
  for (const SkippedCheckpoint& checkpoint : latest.skipped)
    skipped.push_back(Json::array({checkpoint.folder, checkpoint.reason}));
  return Json::array({latest.step.value_or(-1), latest.folder, std::move(skipped)})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

LatestCheckpoint decode(const std::string& text) {
  const Json json = Json::parse(text);
  LatestCheckpoint latest{.folder = json[1]};
  if (const std::int64_t step = json[0]; step >= 0) latest.step = step;
  for (const Json& checkpoint : json[2]) latest.skipped.push_back({checkpoint[0], checkpoint[1]});
  return latest;
}

// Adds those that were not met before: each look below a damaged step meets the unfinished saves again.
void add_skipped(std::vector<SkippedCheckpoint>& all, const std::vector<SkippedCheckpoint>& found) {
  for (const SkippedCheckpoint& checkpoint : found)
    if (std::ranges::find(all, checkpoint) == all.end()) all.push_back(checkpoint);
}

// All ranks open the folder that rank 0 found, or none does.
CheckpointReader open_on_all(FileSystem& files, RankExchange& ranks, const std::string& folder) {
  std::optional<CheckpointReader> reader;
  agree(ranks, [&] {
    reader = CheckpointReader::open(files, folder);
    return std::string();
  });
  return std::move(*reader);
}

}  // namespace

bool LoadedCheckpoint::skipped_damage() const {
  return std::ranges::any_of(skipped,
                             [](const SkippedCheckpoint& each) { return step_of_folder(each.folder).has_value(); });
}

LoadedCheckpoint load_latest(FileSystem& files, RankExchange& ranks, const std::string& directory,
                             const AcceptCheckpoint& accept) {
  LoadedCheckpoint loaded;
  std::int64_t below = std::numeric_limits<std::int64_t>::max();
  for (;;) {
    const LatestCheckpoint latest = decode(agree(
        ranks, [&] { return ranks.rank() == 0 ? encode(find_latest(files, directory, below)) : std::string(); })[0]);
    add_skipped(loaded.skipped, latest.skipped);
    if (!latest.step) return loaded;
    CheckpointReader reader = open_on_all(files, ranks, latest.folder);
    if (const auto targets = accept(reader.manifest(), latest.folder)) {
      try {
        reader.load(ranks, *targets);
      } catch (const CheckpointError& error) {
        loaded.skipped.push_back({step_folder_name(*latest.step), error.what()});
        below = *latest.step;
        continue;
      }
    }
    loaded.manifest = reader.manifest();
    loaded.folder = latest.folder;
    return loaded;
  }
}

LoadedCheckpoint load_named(FileSystem& files, RankExchange& ranks, const std::string& path,
                            const AcceptCheckpoint& accept) {
  const std::string folder =
      agree(ranks, [&] { return ranks.rank() == 0 ? resolve_checkpoint(files, path) : std::string(); })[0];
  CheckpointReader reader = open_on_all(files, ranks, folder);
  if (const auto targets = accept(reader.manifest(), folder)) reader.load(ranks, *targets);
  return {.manifest = reader.manifest(), .folder = folder};
}

}  // namespace tessera
