#include "runtime/base/float_environment.h"

#include <gtest/gtest.h>

#include "tests/base/float_mode.h"

namespace tessera {
namespace {

#if defined(__SSE__)
TEST(FloatEnvironment, FlushesDenormalsThatAreReadAndThatResult) {
  const test::FloatMode flushed(test::FloatMode::kFlushed);
  volatile float denormal = 0x1p-130F;
  volatile float normal = 0x1p-126F;
  EXPECT_EQ(denormal * 0x1p20F, 0.0F);
  EXPECT_EQ(normal * 0.5F, 0.0F);
}

TEST(FloatEnvironment, RoundsToNearestWhateverWasSetBefore) {
  const test::FloatMode restore(test::FloatMode::kGradual);
  _mm_setcsr(0x1F80 | 0x6000);  // towards zero
  set_float_environment();
  volatile float one = 1.0F;
  volatile float most_of_an_ulp = 0x1.8p-24F;
  EXPECT_EQ(one + most_of_an_ulp, 1.0F + 0x1p-23F);
}
#endif

TEST(FloatEnvironment, NormalNumbersAreUntouched) {
  const test::FloatMode flushed(test::FloatMode::kFlushed);
  volatile float smallest = 0x1p-126F;
  EXPECT_EQ(smallest * 2.0F, 0x1p-125F);
}

}  // namespace
}  // namespace tessera
