// Who owns a run directory. A lock of the kernel on the file `.lock`: it goes with the process that holds it, however that ends, so a dead
// owner's lock does not count; the text in the file (host, process, time) is for the message to whoever comes second.
#pragma once

#include <string>

namespace tessera {

class RunLock {
 public:
  // Takes the lock of a directory that exists. ConfigError naming the owner where another run has it; DeviceError where the file cannot be
  // made. A file system without locks is warned about and the run goes on unprotected.
  RunLock(const std::string& directory, const std::string& host);
  // Removes the file and gives the lock back.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void take(const std::string& directory);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tessera
