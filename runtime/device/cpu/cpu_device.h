// The CPU as a device: a thread pool for compute, threads for communication streams, memory from mmap.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/thread_pool.h"
#include "runtime/device/device.h"

namespace tessera {

struct CpuDeviceOptions {
  int num_threads = 1;
  // Runs once in each thread the device starts (pool workers: index >= 1; stream threads: index -1), e.g. to bind it.
  std::function<void(int index)> on_thread_start;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options = {});
  ~CpuDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  Stream create_stream(std::string name, StreamMode mode) override;
  Allocator& allocator() override;
  ThreadPool& pool();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The CPU device behind a stream; InternalError for another kind.
CpuDevice& cpu_device(StreamView stream);

}  // namespace tessera
