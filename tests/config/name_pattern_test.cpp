#include "runtime/config/name_pattern.h"

#include <gtest/gtest.h>

#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

using config::NamePattern;

TEST(NamePattern, IsFoundAnywhereInTheName) {
  EXPECT_TRUE(NamePattern("norm").matches("block.0.attention_norm.weight"));
  EXPECT_TRUE(NamePattern("^block\\.[02]\\.").matches("block.2.feed_forward.up.weight"));
  EXPECT_FALSE(NamePattern("^block\\.[02]\\.").matches("block.1.feed_forward.up.weight"));
  EXPECT_FALSE(NamePattern("bias$").matches("block.0.attention.query.weight"));
}

// Forty letters and an end that does not match: a matcher that backtracks tries each of 2^40 ways to cut them up.
TEST(NamePattern, OfNestedRepetitionsEndsToo) {
  EXPECT_FALSE(NamePattern("^(a+)+$").matches(std::string(40, 'a') + "!"));
  EXPECT_FALSE(NamePattern("(x+x+)+y").matches(std::string(200, 'x')));
}

TEST(NamePattern, SaysWhatCannotBeUsed) {
  EXPECT_EQ(NamePattern("a|b").problem(), "");
  for (const std::string bad : {"(a", "a**b)", "(a)\\1", "(?=a)", "((a{1000}){1000}){1000}"}) {
    EXPECT_NE(NamePattern(bad).problem(), "") << bad;
    const Lines lines =
        problems_of(model_t_with("learning_rate: 1e-3", "groups: [{match: '" + bad + "', weight_decay: 0}]"));
    ASSERT_EQ(lines.size(), 1U) << bad;
    EXPECT_NE(lines[0].find("expected a regular expression ("), std::string::npos) << lines[0];
  }
  EXPECT_NE(NamePattern(std::string(257, 'a')).problem(), "");
}

}  // namespace
}  // namespace tessera::testing
