// A folder that is there whole or not at all: it fills under a name of its own beside its place, and then takes its place.
#pragma once

#include <string>

#include "checkpoint/file_system.h"

namespace tessera {

class NewFolder {
 public:
  // Makes the folders above it that are missing. CheckpointError where something has the name already: nothing is ever written over.
  NewFolder(FileSystem& files, const std::string& path);
  // Removes what was not committed.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Its name, without slashes at the end.
  const std::string& path() const { return path_; }
  // What to write into until then: "runs/.gpt2.new-5f0c2e6a91d4b7c3".
  const std::string& temporary() const { return temporary_; }
  // Durable under its name when it returns. What is inside has been synced by whoever wrote it, but for the folder's own names.
  void commit();

 private:
  FileSystem& files_;
  std::string path_, temporary_;
  bool committed_ = false;
};

}  // namespace tessera
