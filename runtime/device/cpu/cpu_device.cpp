#include "runtime/device/cpu/cpu_device.h"

#include "runtime/base/error.h"
#include "runtime/base/float_environment.h"
#include "runtime/device/cpu/inline_stream.h"
#include "runtime/device/cpu/mmap_resource.h"
#include "runtime/device/cpu/queue_stream.h"

namespace tessera {

struct CpuDevice::State {
  explicit State(const CpuDeviceOptions& options)
      : on_thread_start(options.on_thread_start), pool(options.num_threads, options.on_thread_start) {}

  std::function<void(int)> on_thread_start;
  ThreadPool pool;
  MmapResource memory;
  Allocator allocator{memory};
};

CpuDevice::CpuDevice(const CpuDeviceOptions& options) : state_(std::make_unique<State>(options)) {}

CpuDevice::~CpuDevice() = default;

Stream CpuDevice::create_stream(std::string name, StreamMode mode) {
  if (mode == StreamMode::kCompute) {
    set_float_environment();  // the compute stream is the calling thread
    return Stream(std::make_unique<InlineStream>(*this, std::move(name)));
  }
  std::function<void()> on_start;
  if (state_->on_thread_start) on_start = [start = state_->on_thread_start] { start(-1); };
  return Stream(std::make_unique<QueueStream>(*this, std::move(name), std::move(on_start)));
}

Allocator& CpuDevice::allocator() {
  return state_->allocator;
}

ThreadPool& CpuDevice::pool() {
  return state_->pool;
}

CpuDevice& cpu_device(StreamView stream) {
  Device& device = stream.device();
  require(device.kind() == DeviceKind::kCpu, "an operator of the CPU runs on a stream of the CPU");
  return static_cast<CpuDevice&>(device);
}

}  // namespace tessera
