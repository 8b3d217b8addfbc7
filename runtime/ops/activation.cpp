#include "runtime/ops/activation.h"

#include "runtime/base/error.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/cpu_ops.h"

namespace tessera::ops {

void activation_forward(StreamView stream, const ActivationForward& args) {
  constexpr const char* kOp = "activation_forward";
  const std::int64_t n = args.x.num_elements();
  check_elements(kOp, "x", args.x, n);
  check_elements(kOp, "y", args.y, n);
  if (is_gated(args.kind)) check_elements(kOp, "up", args.up, n);
  if (n == 0) return;
  check_cpu(kOp, stream);
  cpu::activation_forward(stream, args);
}

void activation_backward(StreamView stream, const ActivationBackward& args) {
  constexpr const char* kOp = "activation_backward";
  const std::int64_t n = args.x.num_elements();
  check_elements(kOp, "dy", args.dy, n);
  check_elements(kOp, "x", args.x, n);
  check_elements(kOp, "dx", args.dx, n);
  if (is_gated(args.kind)) {
    check_elements(kOp, "up", args.up, n);
    check_elements(kOp, "dup", args.dup, n);
  }
  if (n == 0) return;
  check_cpu(kOp, stream);
  cpu::activation_backward(stream, args);
}

void add(StreamView stream, const Add& args) {
  constexpr const char* kOp = "add";
  const std::int64_t n = args.y.num_elements();
  check_elements(kOp, "a", args.a, n);
  check_elements(kOp, "b", args.b, n);
  check_elements(kOp, "y", args.y, n);
  if (n == 0) return;
  check_cpu(kOp, stream);
  cpu::add(stream, args);
}

}  // namespace tessera::ops
