#include "runtime/train/call_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace tessera {

class CallLog::Observer final : public CollectiveObserver {
 public:
  Observer(CallLog& log, std::string stream) : log_(log), stream_(std::move(stream)) {}
  void on_call(const CollectiveRecord& record) override { log_.write(record, stream_); }

 private:
  CallLog& log_;
  std::string stream_;
};

CallLog::~CallLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void CallLog::open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  path_ = path;
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr) throw DeviceError(fmt::format("collective log {}: {}", path, std::strerror(errno)));
  append(early_);
  early_.clear();
}

void CallLog::append(const std::string& text) {
  if (file_ == nullptr) {
    early_ += text;
  } else if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) {
    throw DeviceError(fmt::format("collective log {}: {}", path_, std::strerror(errno)));
  }
}

std::shared_ptr<CollectiveObserver> CallLog::observer(std::string stream) {
  return std::make_shared<Observer>(*this, std::move(stream));
}

void CallLog::write(const CollectiveRecord& record, const std::string& stream) {
  std::string line = fmt::format("step {} seq {} group {} stream {} op {} count {} dtype {}",
                                 record.tag != nullptr ? record.tag->step : 0, record.sequence, record.group, stream,
                                 name_of(record.op), record.num_elements, name_of(record.dtype));
  if (record.op == CollectiveOp::kAllReduce || record.op == CollectiveOp::kReduceScatter)
    line += fmt::format(" reduce {}", name_of(record.reduce));
  if (record.root >= 0) line += fmt::format(" root {}", record.root);
  if (record.tag != nullptr) {
    line += fmt::format(" tag {} {}", record.tag->what, record.tag->phase);
    if (record.tag->micro_batch >= 0) line += fmt::format(" micro {}", record.tag->micro_batch);
  }
  line += '\n';
  const std::lock_guard lock(mutex_);
  ++counts_.at(static_cast<std::size_t>(record.op));
  append(line);
}

void CallLog::flush() {
  const std::lock_guard lock(mutex_);
  if (file_ != nullptr && std::fflush(file_) != 0)
    throw DeviceError(fmt::format("collective log {}: {}", path_, std::strerror(errno)));
}

std::int64_t CallLog::count(CollectiveOp op) const {
  const std::lock_guard lock(mutex_);
  return counts_.at(static_cast<std::size_t>(op));
}

}  // namespace tessera
