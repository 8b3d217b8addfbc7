// A resume's way to its state: the newest checkpoint that is whole, or the one that somebody names.
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

  // Whether something that once was a complete checkpoint is among what was skipped: damage, where an unfinished save is none.
  bool skipped_damage() const;
};

// Looks at a manifest, the same on all ranks, and names the slices this rank wants; nothing where the checkpoint is to be taken unread. What it throws
// (another model) passes through, since an older checkpoint would be no better; it throws on all ranks or on none.
using AcceptCheckpoint =
    std::function<std::optional<std::vector<TargetSlice>>(const Manifest& manifest, const std::string& folder)>;

// Collective; rank 0 chooses, all load. A checkpoint that turns out damaged while it is read is skipped as one that is incomplete, and the one
// before it is tried. The targets' contents are undefined where nothing loads.
LoadedCheckpoint load_latest(FileSystem& files, RankExchange& ranks, const std::string& directory,
                             const AcceptCheckpoint& accept);

// Collective: the checkpoint that a user means by a path (resolve_checkpoint), and no other; the same CheckpointError on all ranks where it does
// not load.
LoadedCheckpoint load_named(FileSystem& files, RankExchange& ranks, const std::string& path,
                            const AcceptCheckpoint& accept);

}  // namespace tessera
