// What one rank does around the writing of the shards: makes the folder of a save, completes it, gives it its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/shard_file.h"

namespace tessera {

// The folder of a save under way, for a step that has no checkpoint yet. bytes: all that ranks will write; CheckpointError where the disk has
// less, naming both numbers.
std::string open_save(FileSystem& files, const std::string& directory, std::int64_t step, std::uint64_t bytes);

// Writes the manifest of what the ranks wrote into `folder` (a result of open_save), makes all of it durable under the step's name, and then
// deletes what retention gives up. Returns the manifest. Warnings: what was not deleted, and why.
Manifest publish(FileSystem& files, const std::string& folder, Manifest manifest,
                 const std::vector<ShardReport>& reports, const RetentionPolicy& retention,
                 std::vector<std::string>& warnings);

}  // namespace tessera
