// A resume's way to its state: the newest checkpoint that is whole.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_exchange.h"
#include "checkpoint/tensor_slice.h"

namespace tessera {

struct LoadedCheckpoint {
  std::optional<Manifest> manifest;        // none: there is no checkpoint that loads
  std::string folder;                      // its path
  std::vector<SkippedCheckpoint> skipped;  // newer ones, and unfinished saves, with the reasons: to be said aloud
};

// Collective; rank 0 chooses, all load. A checkpoint that turns out damaged while it is read is skipped as one that is incomplete, and the one
// before it is tried. accept: looks at the manifest, the same on all ranks, and names the slices this rank wants; what it throws (another model) passes
// through, since an older checkpoint would be no better. The targets' contents are undefined where nothing loads.
LoadedCheckpoint load_latest(
    FileSystem& files, RankExchange& ranks, const std::string& directory,
    const std::function<std::vector<TargetSlice>(const Manifest& manifest, const std::string& folder)>& accept);

}  // namespace tessera
