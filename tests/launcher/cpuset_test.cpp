#include "launcher/cpuset.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera {
namespace {

TEST(Cpuset, IsWrittenAsRanges) {
  EXPECT_EQ(cpuset_text({0, 1, 2, 5}), "0-2,5");
  EXPECT_EQ(cpuset_text({7}), "7");
  EXPECT_EQ(cpuset_text({3, 1, 0}), "0-1,3");
  EXPECT_EQ(cpuset_text({}), "none");
}

TEST(Cpuset, IsReadBack) {
  for (const std::vector<int>& pus : {std::vector<int>{0, 1, 2, 5}, {7}, {0, 2, 4}, {1023, 1024, 1025}, {}}) {
    EXPECT_EQ(parse_cpuset(cpuset_text(pus)), pus);
  }
}

TEST(Cpuset, OfAThreadIsWhatItWasBoundTo) {
  const std::vector<int> before = current_cpuset();
  ASSERT_FALSE(before.empty());
  std::vector<int> bound;
  std::thread([&] {
    bind_this_thread({before.back()});
    bound = current_cpuset();
  }).join();
  EXPECT_EQ(bound, std::vector<int>{before.back()});
  EXPECT_EQ(current_cpuset(), before) << "another thread is not touched";
}

}  // namespace
}  // namespace tessera
