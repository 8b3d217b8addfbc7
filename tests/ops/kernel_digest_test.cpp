#include "runtime/ops/kernel_digest.h"

#include <array>

#include "tests/ops/op_test.h"

namespace tessera::ops {
namespace {

TEST(KernelDigest, IsTheSameForAnyNumberOfThreadsAndEachTime) {
  const std::array<ProductShape, 3> products = {{{1024, 768, 3072}, {256, 768, 50304}, {7, 3, 5}}};
  const Cpu one(1);
  const std::uint64_t digest = kernel_digest(one.stream(), products);
  EXPECT_EQ(kernel_digest(one.stream(), products), digest);
  for (const int threads : {2, 3}) {
    const Cpu cpu(threads);
    EXPECT_EQ(kernel_digest(cpu.stream(), products), digest);
  }
}

TEST(KernelDigest, CoversTheProductsOfTheJob) {
  const Cpu cpu;
  const std::array<ProductShape, 1> one = {{{16, 8, 32}}};
  const std::array<ProductShape, 1> other = {{{16, 9, 32}}};
  EXPECT_NE(kernel_digest(cpu.stream(), one), kernel_digest(cpu.stream(), other));
  EXPECT_NE(kernel_digest(cpu.stream(), one), kernel_digest(cpu.stream(), {}));
}

}  // namespace
}  // namespace tessera::ops
