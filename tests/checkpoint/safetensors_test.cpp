#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  return little_endian(header.size()) + header + std::string(data_bytes, '\0');
}

class Safetensors : public testing::Test {
 protected:
  SafetensorsHeader read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_safetensors_header(*files_, path_);
  }
  // The rule that the file breaks; "" where it is read.
  std::string refusal(const std::string& bytes) {
    try {
      read(bytes);
    } catch (const CheckpointError& error) {
      const std::string text = error.what(), start = path_ + ": no safetensors file: ";
      EXPECT_TRUE(text.starts_with(start)) << text;
      return text.substr(std::min(start.size(), text.size()));
    }
    return "";
  }

  test::TemporaryDirectory directory_;
  std::string path_ = directory_ / "model.safetensors";
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

TEST_F(Safetensors, ReadsWhatItEncodes) {
  const std::vector<SafetensorsEntry> tensors{{"a\"ä", "F32", {2, 3}, 0, 24}, {"scalar", "F32", {}, 24, 28}};
  const std::string header = encode_safetensors_header({{"format", "tessera-checkpoint"}}, tensors);
  EXPECT_EQ(header.size() % 64, 0U);
  const SafetensorsHeader read_back = read(header + std::string(28, '\0'));
  EXPECT_EQ(read_back.tensors, tensors);
  EXPECT_EQ(read_back.metadata, (std::map<std::string, std::string>{{"format", "tessera-checkpoint"}}));
  EXPECT_EQ(read_back.data_offset, header.size());
}

TEST_F(Safetensors, ReadsFilesOfOthers) {
  const SafetensorsHeader header = read(file_of(
      R"({"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},"none":{"shape":[0,5],"data_offsets":[4,4],"dtype":"I64"},)"
      R"("h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[12,15]}}   )",
      15));
  EXPECT_EQ(header.tensors, (std::vector<SafetensorsEntry>{{"h", "F16", {2}, 0, 4},
                                                           {"none", "I64", {0, 5}, 4, 4},
                                                           {"w", "BF16", {2, 2}, 4, 12},
                                                           {"mask", "BOOL", {3}, 12, 15}}));
  EXPECT_TRUE(read(file_of("{}", 0)).tensors.empty());
}

struct Broken {
  std::string what, bytes, rule;
};

std::string one(const std::string& fields) {
  return fmt::format(R"({{"a":{{{}}}}})", fields);
}

TEST_F(Safetensors, NamesTheRuleThatAFileBreaks) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string nested = std::string(1000000, '[');
  const std::vector<Broken> table{
      {"empty", "", "0 bytes, a header's length alone has 8"},
      {"7 bytes", "1234567", "7 bytes, a header's length alone has 8"},
      {"length huge", little_endian(~std::uint64_t{0}) + "{}",
       "a header of 18446744073709551615 bytes, at most 16777216 are read"},
      {"length negative", little_endian(std::uint64_t{1} << 63) + "{}",
       "a header of 9223372036854775808 bytes, at most 16777216 are read"},
      {"past the end", little_endian(100) + "{}", "a header of 100 bytes, 2 are there"},
      {"no header", little_endian(0), "the header does not begin with '{'"},
      {"white space first", file_of(" {}", 0), "the header does not begin with '{'"},
      {"byte order mark", file_of("\xef\xbb\xbf{}", 0), "the header does not begin with '{'"},
      {"a list", file_of("[]", 0), "the header does not begin with '{'"},
      {"text behind", file_of("{}{}", 0), "the header is no JSON, at byte 3"},
      {"cut off", file_of(R"({"a":)", 0), "the header is no JSON, at byte 6"},
      {"zeros behind", file_of("{}" + std::string(3, '\0'), 0), "the header holds a NUL byte"},
      {"bad UTF-8", file_of("{\"\xff\xfe\": {}}", 0), "the header is no UTF-8, at byte 3"},
      {"nested lists", file_of("{\"a\":" + nested, 0), "a is an array, which the format does not have there"},
      {"nested shape", file_of(R"({"a":{"shape":)" + nested, 0),
       "shape of a holds an array, which the format does not have there"},
      {"nested objects", file_of(R"({"a":{"dtype":{"a":{"a":)", 0),
       "dtype of a holds an object, which the format does not have there"},
      {"a number", file_of(R"({"a":1})", 0), "a is the number 1, which the format does not have there"},
      {"a name twice", file_of(fmt::format("{{{},{}}}", a, a), 4), "a stands twice"},
      {"a field twice", file_of(one(R"("dtype":"F32","dtype":"F32")"), 0), "a has dtype twice"},
      {"an unknown field", file_of(one(R"("dtype":"F32","strides":[1])"), 0), "a has an unknown field, strides"},
      {"a field missing", file_of(one(R"("dtype":"F32","shape":[1])"), 0), "a lacks dtype, shape or data_offsets"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ stands twice"},
      {"metadata of numbers", file_of(R"({"__metadata__":{"step":1}})", 0),
       "step of __metadata__ holds the number 1, which the format does not have there"},
      {"unknown dtype", file_of(one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4),
       "a has the unknown dtype F33"},
      {"fraction", file_of(one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4),
       "shape of a holds the number 1.5, which the format does not have there"},
      {"negative", file_of(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4),
       "shape of a holds the number -1, which the format does not have there"},
      {"one offset", file_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4),
       "data_offsets of a are not two"},
      {"three offsets", file_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 4),
       "data_offsets of a are more than two"},
      {"product too small", file_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
       "a of F32 [2] needs 8 bytes, data_offsets are [0, 4]"},
      {"width of the dtype", file_of(one(R"("dtype":"F16","shape":[2],"data_offsets":[0,8])"), 8),
       "a of F16 [2] needs 4 bytes, data_offsets are [0, 8]"},
      {"backwards", file_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4),
       "a of F32 [1] needs 4 bytes, data_offsets are [4, 0]"},
      // 2^32 · 2^32 is 0 modulo 2^64.
      {"overflow", file_of(one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0),
       "a of [4294967296, 4294967296] has a size that does not fit 63 bits"},
      {"overflow by the dtype", file_of(one(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0),
       "a of [2305843009213693952] has a size that does not fit 63 bits"},
      {"a number above 63 bits", file_of(one(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0])"), 0),
       "shape of a does not fit 63 bits: 9223372036854775808"},
      {"above the data", file_of(fmt::format("{{{}}}", a), 3), "a ends at byte 4 of the data, which has 3"},
      {"bytes behind", file_of(fmt::format("{{{}}}", a), 5), "1 bytes follow the last tensor"},
      {"overlap", file_of(fmt::format(R"({{{},"b":{{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}}})", a), 6),
       "b begins at byte 2 of the data, 4 expected: an overlap"},
      {"gap", file_of(fmt::format(R"({{{},"b":{{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}}})", a), 12),
       "b begins at byte 8 of the data, 4 expected: a gap"},
  };
  for (const Broken& broken : table) EXPECT_EQ(refusal(broken.bytes), broken.rule) << broken.what;
}

TEST_F(Safetensors, SurvivesEveryTruncationAndEveryFlippedHeaderByte) {
  const std::string good = encode_safetensors_header({}, {{"a", "F32", {2, 3}, 0, 24}}) + std::string(24, '\0');
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_NE(refusal(good.substr(0, size)), "") << size;
  for (std::size_t i = 0; i < good.size() - 24; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      refusal(bytes);  // a name may have become another name; nothing may crash
    }
  }
}

TEST_F(Safetensors, ANumberOfTensorsThatFillsTheLargestHeaderIsRead) {
  std::string header = "{";
  for (int i = 0; header.size() < kMaxSafetensorsHeaderBytes - 100; ++i)
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
  EXPECT_GT(read(file_of(header + "}", 0)).tensors.size(), 250000U);
}

}  // namespace
}  // namespace tessera
