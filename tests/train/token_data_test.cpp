#include "runtime/train/token_data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/train/token_writer.h"
#include "tests/support/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class TokenFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera-tokens-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string u16(const std::vector<std::uint16_t>& tokens) {
    return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2};
  }
  static std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
    std::vector<std::int32_t> words(256, 0);
    words[0] = magic, words[1] = version, words[2] = count;
    return {reinterpret_cast<const char*>(words.data()), 1024};
  }
  // 0, 1, 2 … n-1 as an llm.c file.
  std::string counting(const std::string& name, std::uint32_t n) const {
    std::vector<std::uint32_t> tokens(n);
    std::iota(tokens.begin(), tokens.end(), 0U);
    write_token_file(path(name), tokens, 65536);
    return path(name);
  }

  fs::path directory_;
};

std::string open_refusal(const std::string& path) {
  return test::message_of<DataError>([&] { TokenFile::open(path); });
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST_F(TokenFiles, AWrittenFileReadsBackInBothWidths) {
  write_token_file(path("a.bin"), std::vector<std::uint32_t>{0, 7, 65535}, 65536);
  write_token_file(path("b.bin"), std::vector<std::uint32_t>{0, 65536, 70000}, 70001);
  const TokenFile a = TokenFile::open(path("a.bin")), b = TokenFile::open(path("b.bin"));
  EXPECT_EQ(a.format(), "llm.c u16");
  EXPECT_EQ(b.format(), "llm.c u32");
  EXPECT_EQ(fs::file_size(path("a.bin")), 1024U + 3 * 2);
  EXPECT_EQ(fs::file_size(path("b.bin")), 1024U + 3 * 4);
  ASSERT_EQ(a.num_tokens(), 3);
  ASSERT_EQ(b.num_tokens(), 3);
  EXPECT_EQ(a[2], 65535U);
  EXPECT_EQ(b[1], 65536U);
  EXPECT_EQ(b[2], 70000U);
}

TEST_F(TokenFiles, TheHeaderIsThatOfLlmC) {
  write_token_file(path("a.bin"), std::vector<std::uint32_t>{5, 6}, 100);
  std::ifstream in(path("a.bin"), std::ios::binary);
  std::vector<std::int32_t> words(256);
  in.read(reinterpret_cast<char*>(words.data()), 1024);
  EXPECT_EQ(words[0], 20240520);
  EXPECT_EQ(words[1], 1);
  EXPECT_EQ(words[2], 2);
  EXPECT_EQ(std::accumulate(words.begin() + 3, words.end(), 0), 0);
}

TEST_F(TokenFiles, RawU16HasNoHeader) {
  const TokenFile file = TokenFile::open(write("raw.bin", u16({1, 2, 50000})));
  EXPECT_EQ(file.format(), "raw u16");
  EXPECT_EQ(file.num_tokens(), 3);
  EXPECT_EQ(file[2], 50000U);
}

TEST_F(TokenFiles, AHalvedFileIsRefusedWithBothCounts) {
  const std::string name = counting("half.bin", 100);
  fs::resize_file(name, (1024 + 200) / 2 + 512);  // 1124 bytes: 100 of 200 bytes of tokens are left
  expect_parts(open_refusal(name), {name, "100 tokens (200 bytes)", "found 100 bytes"});
  fs::resize_file(name, 600);
  expect_parts(open_refusal(name), {name, "600 bytes", "header of 1024 bytes"});
}

TEST_F(TokenFiles, AHeaderThatCountsPastTheEndIsRefused) {
  const std::string name = write("past.bin", header(20240520, 1, 2000000000) + u16({1, 2}));
  expect_parts(open_refusal(name), {name, "2000000000 tokens (4000000000 bytes)", "found 4 bytes"});
  expect_parts(open_refusal(write("negative.bin", header(20240520, 1, -3) + u16({1}))), {"-3 tokens", "found 2 bytes"});
  expect_parts(open_refusal(write("longer.bin", header(20240520, 1, 1) + u16({1, 2}))), {"1 tokens", "found 4 bytes"});
}

TEST_F(TokenFiles, AFileCutShortWhileItIsReadIsAnErrorWithItsName) {
  const std::string name = counting("cut.bin", 10000);
  const TokenDataset data({{name, 1.0}}, 9, 65536);
  std::vector<std::int32_t> inputs(9), targets(9);
  fs::resize_file(name, 1024 + 2 * 5000);
  data.read(500, inputs, targets);  // tokens 4500 … 4509 are there
  EXPECT_EQ(inputs[0], 4500);
  EXPECT_EQ(targets[8], 4509);
  expect_parts(test::message_of<DataError>([&] { data.read(555, inputs, targets); }),
               {name, "has 11024 bytes", "had 21024 when it was opened"});
}

TEST_F(TokenFiles, AWrongVersionIsRefused) {
  expect_parts(open_refusal(write("v.bin", header(20240520, 7, 1) + u16({1}))), {"version 7", "expected 1"});
  expect_parts(open_refusal(write("w.bin", header(20240801, 1, 1) + u16({1, 0}))), {"version 1", "expected 7"});
}

TEST_F(TokenFiles, AnOddByteCountIsRefused) {
  const std::string name = write("odd.bin", u16({1, 2, 3}) + '\0');
  expect_parts(open_refusal(name), {name, "7 bytes", "odd"});
}

TEST_F(TokenFiles, ABigEndianHeaderIsRefused) {
  std::string bytes = header(20240520, 1, 1) + u16({1});
  for (std::size_t i = 0; i < 1024; i += 4) {
    std::swap(bytes[i], bytes[i + 3]);
    std::swap(bytes[i + 1], bytes[i + 2]);
  }
  expect_parts(open_refusal(write("big.bin", bytes)), {"20240520", "big-endian", "expected little-endian"});
}

TEST_F(TokenFiles, AnEmptyFileADirectoryAndAMissingFileAreRefused) {
  expect_parts(open_refusal(write("empty.bin", "")), {path("empty.bin"), "empty (0 bytes)"});
  expect_parts(open_refusal(directory_.string()), {directory_.string(), "directory"});
  expect_parts(open_refusal(path("absent.bin")), {path("absent.bin"), "No such file"});
  expect_parts(open_refusal("/dev/null"), {"/dev/null", "not a regular file"});
}

TEST_F(TokenFiles, TextIsRefusedWhateverItsLengthOrLanguage) {
  const std::vector<std::string> texts = {
      "Call me Ishmael. Some years ago - never mind how long precisely.\n", "odd", "{\"text\": \"a line of JSON\"}\n",
      "Так говорил Заратустра, спустившись с горы", "\xc7\xe0\xf0\xe0 Latin-1 text, mostly readable in ASCII"};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string name = write("text" + std::to_string(i) + ".bin", texts[i]);
    expect_parts(open_refusal(name), {name, "looks like text", "expected an llm.c token file"});
  }
}

TEST_F(TokenFiles, TokensAreNotTakenForText) {
  // Every pair of these bytes is printable, yet small ids with a zero upper byte follow, as in any real file.
  EXPECT_EQ(TokenFile::open(write("a.bin", u16({0x2020, 0x4141, 0x0041, 0x0107}))).num_tokens(), 4);
  EXPECT_EQ(TokenFile::open(write("b.bin", u16({640, 11, 198, 50256, 2048}))).num_tokens(), 5);
}

TEST_F(TokenFiles, FilesOfOthersAreRefusedByName) {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"\x1f\x8b\x08\0\0\0\0\0\0\3abcd"s, "gzip"},
      {"\x28\xb5\x2f\xfd\x24\x00"s, "zstd"},
      {"\x93NUMPY\1\0v\0{'descr': '<u2'}"s, "NumPy .npy"},
      {"MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08"s, "Megatron index"},
      {"PAR1\x15\0\x15\x08"s, "Parquet"},
      {"ARROW1\0\0\xff\xff\xff\xff"s, "Arrow"},
      {"PK\3\4\x14\0\0\0archive/data.pkl"s, "PyTorch"},
      {"GGUF\3\0\0\0\0\0\0\0"s, "GGUF"},
      {"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}"s, "safetensors"},
      {"\n\x0e\n\5<unk>\x15\0\0\0\0\x18\2"s, "SentencePiece model"},
      {header(20240522, 1, 10), "llm.c evaluation file"},
      {header(20240326, 3, 1024), "llm.c model checkpoint"},
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = write("foreign" + std::to_string(i), files[i].first);
    expect_parts(open_refusal(name), {name, files[i].second, "expected an llm.c token file"});
  }
}

TEST_F(TokenFiles, AMegatronBinIsKnownByTheIndexBesideIt) {
  write("corpus_text_document.idx", "MMIDIDX");
  const std::string name = write("corpus_text_document.bin", u16({1, 2, 3, 4}));
  expect_parts(open_refusal(name), {name, "Megatron", "corpus_text_document.idx"});
}

TEST_F(TokenFiles, RawWiderIntegersAreRefused) {
  std::vector<std::uint32_t> ids(64);
  std::iota(ids.begin(), ids.end(), 1U);
  const std::string bytes(reinterpret_cast<const char*>(ids.data()), 256);
  expect_parts(open_refusal(write("int32.bin", bytes)), {"32 or 64-bit integers"});
}

TEST_F(TokenFiles, AWriterNeverLeavesAHalfWrittenFile) {
  {
    TokenFileWriter writer(path("shard.bin"), 100);
    writer.append(std::vector<std::uint32_t>{1, 2, 3});
  }
  EXPECT_TRUE(fs::is_empty(directory_));
  expect_parts(test::message_of<DataError>([&] {
                 write_token_file(path("shard.bin"), std::vector<std::uint32_t>{1, 100}, 100);
               }),
               {"token id 100", "position 1", "vocab_size 100"});
  EXPECT_TRUE(fs::is_empty(directory_));
  expect_parts(
      test::message_of<DataError>([] { write_token_file("/dev/full/x.bin", std::vector<std::uint32_t>{1}, 2); }),
      {"/dev/full/x.bin", "cannot create"});
}

// Sixteen inputs and sixteen targets, one further: a window takes 17 tokens, and the next starts 16 later.
TEST_F(TokenFiles, SixteenTokensAreRefusedAndSeventeenAreOneWindow) {
  const auto count = [&](std::uint32_t n) {
    return TokenDataset({{counting("n" + std::to_string(n) + ".bin", n), 1.0}}, 16, 65536).num_sequences();
  };
  for (const std::uint32_t n : {0U, 1U, 16U}) {
    expect_parts(test::message_of<DataError>([&] { count(n); }),
                 {"n" + std::to_string(n) + ".bin: " + std::to_string(n) + " tokens, need 17"});
  }
  EXPECT_EQ(count(17), 1);
  EXPECT_EQ(count(18), 1);
  EXPECT_EQ(count(32), 1);
  EXPECT_EQ(count(33), 2);
}

TEST_F(TokenFiles, WindowsShareOneTokenAndNeverCrossFiles) {
  counting("a.bin", 9);  // windows of 4 + 1 tokens: 0-4, 4-8
  counting("b.bin", 6);  // 0-4; token 5 is dropped
  const TokenDataset data({{path("*.bin"), 1.0}}, 4, 65536);
  ASSERT_EQ(data.num_sequences(), 3);
  EXPECT_EQ(data.num_tokens(), 15);
  std::vector<std::int32_t> inputs(4), targets(4);
  const auto window = [&](std::int64_t i) {
    data.read(i, inputs, targets);
    return std::make_pair(inputs, targets);
  };
  using Window = std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>;
  EXPECT_EQ(window(0), (Window{{0, 1, 2, 3}, {1, 2, 3, 4}}));
  EXPECT_EQ(window(1), (Window{{4, 5, 6, 7}, {5, 6, 7, 8}}));
  EXPECT_EQ(window(2), (Window{{0, 1, 2, 3}, {1, 2, 3, 4}}));
}

// Position 37 is an input of window 2 (32 … 47) of 16; in a file of 38 tokens with windows of 37 it is the last target
// only.
TEST_F(TokenFiles, AnIdOutsideTheVocabularyIsNamedAsInputAndAsLastTarget) {
  std::vector<std::uint32_t> tokens(65, 1);
  tokens[37] = 64;
  write_token_file(path("input.bin"), tokens, 65);
  tokens.resize(38);
  write_token_file(path("target.bin"), tokens, 65);
  const auto message = [&](const std::string& name, std::int64_t seq_len) {
    return test::message_of<DataError>([&] { TokenDataset({{path(name), 1.0}}, seq_len, 64); });
  };
  EXPECT_EQ(message("input.bin", 16),
            path("input.bin") + ": token id 64 at position 37 is outside model.vocab_size 64");
  EXPECT_EQ(message("target.bin", 37),
            path("target.bin") + ": token id 64 at position 37 is outside model.vocab_size 64");
  EXPECT_EQ(TokenDataset({{path("target.bin"), 1.0}}, 37, 65).num_sequences(), 1);
}

TEST_F(TokenFiles, GlobsAreSortedByBytesAndMustMatch) {
  for (const char* name : {"train-10.bin", "train-2.bin", "Train-1.bin", "train-1.bin"}) counting(name, 5);
  const TokenDataset data({{path("?rain-*.bin"), 1.0}}, 4, 65536);
  std::vector<std::string> names;
  for (const TokenFile& file : data.files()) names.push_back(fs::path(file.path()).filename().string());
  EXPECT_EQ(names, (std::vector<std::string>{"Train-1.bin", "train-1.bin", "train-10.bin", "train-2.bin"}));
  const auto open = [&](const std::string& name) {
    return test::message_of<DataError>([&] { TokenDataset({{path(name), 1.0}}, 4, 65536); });
  };
  expect_parts(open("valid-*.bin"), {path("valid-*.bin"), "no file matches"});
  expect_parts(open("absent.bin"), {path("absent.bin"), "no such file"});
}

TEST_F(TokenFiles, AFileNamedTwiceIsRefused) {
  counting("a.bin", 5);
  fs::create_symlink(path("a.bin"), path("b.bin"));
  expect_parts(test::message_of<DataError>([&] {
                 TokenDataset({{path("a.bin"), 1.0}, {path("*.bin"), 1.0}}, 4, 65536);
               }),
               {"named twice", path("*.bin")});
  expect_parts(test::message_of<DataError>([&] { TokenDataset({{path("*.bin"), 1.0}}, 4, 65536); }), {"named twice"});
}

TEST_F(TokenFiles, WeightsRepeatOrThinASource) {
  counting("a.bin", 41);  // 10 windows, the i-th starts at token 4 i
  counting("b.bin", 9);   // 2 windows
  const auto starts = [&](double weight) {
    const TokenDataset data({{path("a.bin"), weight}, {path("b.bin"), 1.0}}, 4, 65536);
    std::vector<std::int32_t> result, inputs(4), targets(4);
    for (std::int64_t i = 0; i < data.num_sequences(); ++i) {
      data.read(i, inputs, targets);
      result.push_back(inputs[0] / 4);
    }
    return result;
  };
  EXPECT_EQ(starts(0.2), (std::vector<std::int32_t>{0, 5, 0, 1}));
  EXPECT_EQ(starts(1.2), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 5, 0, 1}));
  EXPECT_EQ(starts(2).size(), 22U);
  expect_parts(test::message_of<DataError>([&] { starts(0.05); }), {"less than one window"});
  expect_parts(test::message_of<DataError>([&] { starts(0); }), {"weight 0"});
}

TEST_F(TokenFiles, ADigestFollowsNamesAndSizesNotFolders) {
  fs::create_directory(directory_ / "elsewhere");
  const auto digest = [&](const std::string& name) { return TokenDataset({{path(name), 1.0}}, 4, 65536).digest(); };
  counting("a.bin", 9), counting("elsewhere/a.bin", 9), counting("b.bin", 9), counting("elsewhere/b.bin", 10);
  EXPECT_EQ(digest("a.bin"), digest("elsewhere/a.bin"));
  EXPECT_NE(digest("a.bin"), digest("b.bin"));
  EXPECT_NE(digest("b.bin"), digest("elsewhere/b.bin"));
}

TEST_F(TokenFiles, AShortFileAmongOthersIsLeftOut) {
  counting("a.bin", 9), counting("b.bin", 3);
  EXPECT_EQ(TokenDataset({{path("*.bin"), 1.0}}, 4, 65536).num_sequences(), 2);
}

}  // namespace
}  // namespace tessera
