// A communication stream of the CPU: a thread that runs its queue in order, so that transfers overlap with compute.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/device/stream.h"

namespace tessera {

class QueueStream final : public StreamImpl {
 public:
  // on_start runs first, on the stream's thread; what it throws is rethrown here.
  QueueStream(Device& device, std::string name, std::function<void()> on_start);
  ~QueueStream() override;  // runs what is queued, then joins
  QueueStream(const QueueStream&) = delete;
  QueueStream& operator=(const QueueStream&) = delete;

  Device& device() const override { return device_; }
  std::string_view name() const override;
  void enqueue(std::function<void()> work) override;
  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;

  struct Queue;

 private:
  Device& device_;
  std::shared_ptr<Queue> queue_;  // events share it: they may outlive the stream
};

}  // namespace tessera
