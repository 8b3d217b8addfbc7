#include "runtime/ops/activation.h"

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/ops/cpu/cpu_ops.h"
#include "runtime/ops/cpu/current_kernels.h"
#include "runtime/ops/cpu/tasks.h"

namespace tessera::ops::cpu {
namespace {

// The order of Kernels::activation_forward.
static_assert(static_cast<int>(ActivationKind::kGelu) == 0 && static_cast<int>(ActivationKind::kGeluTanh) == 1 &&
              static_cast<int>(ActivationKind::kRelu) == 2 && static_cast<int>(ActivationKind::kSilu) == 3 &&
              static_cast<int>(ActivationKind::kSwiGlu) == 4 && static_cast<int>(ActivationKind::kGeGlu) == 5);

}  // namespace

void activation_forward(StreamView stream, const ActivationForward& args) {
  stream.enqueue([stream, args] {
    const auto kernel = kernels().activation_forward[static_cast<int>(args.kind)];
    const float* up = is_gated(args.kind) ? args.up.as<float>() : nullptr;
    for_chunks(cpu_device(stream).pool(), args.x.num_elements(), kElementChunk,
               [&](std::int64_t first, std::int64_t last) {
                 kernel(args.x.as<float>() + first, up == nullptr ? nullptr : up + first, args.y.as<float>() + first,
                        last - first);
               });
  });
}

void activation_backward(StreamView stream, const ActivationBackward& args) {
  stream.enqueue([stream, args] {
    const auto kernel = kernels().activation_backward[static_cast<int>(args.kind)];
    const bool gated = is_gated(args.kind);
    for_chunks(
        cpu_device(stream).pool(), args.x.num_elements(), kElementChunk, [&](std::int64_t first, std::int64_t last) {
          kernel(args.dy.as<float>() + first, args.x.as<float>() + first, gated ? args.up.as<float>() + first : nullptr,
                 args.dx.as<float>() + first, gated ? args.dup.as<float>() + first : nullptr, last - first);
        });
  });
}

void add(StreamView stream, const Add& args) {
  stream.enqueue([stream, args] {
    for_chunks(cpu_device(stream).pool(), args.y.num_elements(), kElementChunk,
               [&](std::int64_t first, std::int64_t last) {
                 kernels().add(args.a.as<float>() + first, args.b.as<float>() + first, args.y.as<float>() + first,
                               last - first);
               });
  });
}

}  // namespace tessera::ops::cpu
