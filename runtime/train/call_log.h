// What each rank called, as text: one line per collective, written before the call is issued.
//
//   step 3 seq 17 group dp:0 stream gather op all_gather count 9216 dtype fp32 tag block.3 forward micro 0
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "parallel/communicator.h"

namespace tessera {

// The file collectives/rank-RRRRR.log of one rank, shared by the observers of its communicators. Lines are flushed with the log interval (run.log_every), at the end, and when a run fails.
class CallLog {
 public:
  CallLog() = default;
  ~CallLog();
  // Calls made before are kept and written then. Throws DeviceError where the file cannot be created.
  void open(const std::string& path);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // An observer for one communicator, whose calls go to the named stream. Must not outlive the log.
  std::shared_ptr<CollectiveObserver> observer(std::string stream);
  void flush();
  // Calls recorded so far, by op.
  std::int64_t count(CollectiveOp op) const;

 private:
  class Observer;
  void write(const CollectiveRecord& record, const std::string& stream);
  void append(const std::string& text);

  std::FILE* file_ = nullptr;
  std::string early_;  // lines from before open()
  std::string path_;
  mutable std::mutex mutex_;
  std::array<std::int64_t, 8> counts_{};
};

}  // namespace tessera
