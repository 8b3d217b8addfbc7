#include "runtime/config/scalar.h"

#include <gtest/gtest.h>

namespace tessera::config {
namespace {

TEST(ParseInteger, TakesPlainDecimalsOnly) {
  ASSERT_TRUE(parse_integer("0"));
  EXPECT_EQ(parse_integer("42")->magnitude, 42u);
  EXPECT_TRUE(parse_integer("-42")->negative);
  EXPECT_EQ(parse_integer("18446744073709551615")->magnitude, 18446744073709551615u);
  EXPECT_TRUE(parse_integer("18446744073709551616")->overflow);
  for (const char* text : {"", "-", "+", "00", "01", "0x1", "1.0", "1e1", " 1", "1 ", "1_0", "--1", "٣", "1a"}) {
    EXPECT_FALSE(parse_integer(text)) << text;
  }
}

TEST(ParseNumber, TakesTheCoreSchemaOnly) {
  EXPECT_EQ(parse_number("-1.5e+3"), -1500.0);
  EXPECT_EQ(parse_number(".5"), 0.5);
  EXPECT_EQ(parse_number("5."), 5.0);
  EXPECT_EQ(parse_number("0e0"), 0.0);
  for (const char* text :
       {"", ".", "e3", "1e", "1e+", "0x1p3", "nan", "inf", ".inf", "1,5", "01", "1e999", "5e-324", "1d3", "+-1"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
}

TEST(ParseByteSize, TakesWholeNumbersOfBytes) {
  EXPECT_EQ(parse_byte_size("1000000"), 1000000);
  EXPECT_EQ(parse_byte_size("8GiB"), 8589934592);
  EXPECT_EQ(parse_byte_size("1.5 MiB"), 1572864);
  EXPECT_EQ(parse_byte_size("2TiB"), 2199023255552);
  for (const char* text :
       {"", "0", "8GB", "8 G", "-1", "1.5", "KiB", "8  GiB", "8GiB ", "1e3", "99999999999999999999TiB", "0x10"}) {
    EXPECT_FALSE(parse_byte_size(text)) << text;
  }
}

TEST(LooksLikeAnotherType, SeesWhatReadersOfOldAndNewYamlSee) {
  for (const char* text :
       {"", "~", "null", "True", "no", "ON", "12", "-1", "0o7", "0x1F", "1e3", ".5", ".NaN", "1_000"}) {
    EXPECT_TRUE(looks_like_another_type(text)) << text;
  }
  for (const char* text : {"adamw", "data/t.bin", "v1", "2x", "none", "1.2.3", "-x"})
    EXPECT_FALSE(looks_like_another_type(text)) << text;
}

}  // namespace
}  // namespace tessera::config
