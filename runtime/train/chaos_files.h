// The faults of a save, where a real one would come from: below the writer, in the file system.
#pragma once

#include <memory>

#include "checkpoint/file_system.h"
#include "runtime/train/chaos.h"

namespace tessera {

// A file system in which the save of a step meets this rank's faults of that step, once each:
//   kill_in_save   the process dies with half of a shard's first chunk written
//   disk_full      that write finds the disk full, half of it written
//   flip_bit       the shard is written, synced and closed as it should be; then the lowest bit of its middle byte is another
// All else passes through. `real` and `chaos` outlive it; any thread, after chaos.open().
std::unique_ptr<FileSystem> make_chaos_file_system(FileSystem& real, Chaos& chaos);

}  // namespace tessera
