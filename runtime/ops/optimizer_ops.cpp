#include "runtime/ops/optimizer_ops.h"

#include "runtime/base/error.h"
#include "runtime/ops/check.h"
#include "runtime/ops/cpu/cpu_ops.h"

namespace tessera::ops {

void adamw(StreamView stream, const AdamW& args) {
  const std::size_t n = args.parameter.size();
  require(args.m.size() == n && args.v.size() == n && args.gradient.size() == n, "adamw: four ranges of one length");
  if (n == 0) return;
  check_cpu("adamw", stream);
  cpu::adamw(stream, args);
}

void add_in_place(StreamView stream, std::span<float> destination, std::span<const float> source) {
  require(destination.size() == source.size(), "add_in_place: two ranges of one length");
  if (destination.empty()) return;
  check_cpu("add_in_place", stream);
  cpu::add_in_place(stream, destination, source);
}

ExactSum exact_sum(StreamView stream, std::span<const float> values) {
  check_cpu("exact_sum", stream);
  return cpu::exact_sum(stream, values, false);
}

ExactSum exact_sum_of_squares(StreamView stream, std::span<const float> values) {
  check_cpu("exact_sum_of_squares", stream);
  return cpu::exact_sum(stream, values, true);
}

}  // namespace tessera::ops
