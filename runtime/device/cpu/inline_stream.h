// The compute stream of the CPU: enqueue runs the work at once on the caller's thread. What the work throws reaches the
// caller of enqueue, so the stream itself is never poisoned; every event of it is complete when it is recorded.
#pragma once

#include <string>

#include "runtime/device/stream.h"

namespace tessera {

class InlineStream final : public StreamImpl {
 public:
  InlineStream(Device& device, std::string name) : device_(device), name_(std::move(name)) {}

  Device& device() const override { return device_; }
  std::string_view name() const override { return name_; }
  void enqueue(std::function<void()> work) override { work(); }
  Event record() override { return {}; }
  void wait(const Event& event) override { event.synchronize(); }
  void synchronize() override {}

 private:
  Device& device_;
  std::string name_;
};

}  // namespace tessera
