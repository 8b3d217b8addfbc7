#include "runtime/train/text_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "tests/support/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class TextReading : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tessera-text-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream((directory_ / name).string(), std::ios::binary) << bytes;
    return (directory_ / name).string();
  }
  std::string write_gzip(const std::string& name, const std::string& bytes) const {
    const std::string path = (directory_ / name).string();
    const gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    ::gzclose(file);
    return path;
  }
  fs::path directory_;
};

// Documents as their sections joined by '|'; checks that starts and ends alternate.
std::vector<std::string> documents(const std::vector<std::string>& paths, const TextReaderOptions& options = {}) {
  std::vector<std::string> result;
  TextReader reader(paths, options);
  TextSection section;
  bool open = false;
  while (reader.next(section)) {
    EXPECT_EQ(section.starts_document, !open);
    EXPECT_LE(section.text.size(), options.section_bytes);
    if (section.starts_document) {
      result.push_back(section.text);
    } else if (!section.text.empty()) {
      result.back() += "|" + section.text;
    }
    open = !section.ends_document;
  }
  EXPECT_FALSE(open);
  return result;
}

using Documents = std::vector<std::string>;

TEST_F(TextReading, AFileIsADocumentAndAnEmptyOneIsNone) {
  EXPECT_EQ(documents({write("a.txt", "one\n"), write("empty.txt", ""), write("b.pod", "two")}),
            (Documents{"one\n", "two"}));
}

TEST_F(TextReading, ALongDocumentComesInSectionsCutAtLinesThenSpacesThenCharacters) {
  EXPECT_EQ(documents({write("lines.txt", "one\ntwo\nthree\n")}, {.section_bytes = 9}),
            (Documents{"one\ntwo\n|three\n"}));
  EXPECT_EQ(documents({write("spaces.txt", "one two three")}, {.section_bytes = 9}), (Documents{"one two| three"}));
  EXPECT_EQ(documents({write("none.txt", "\xc3\xa9\xc3\xa9\xc3\xa9")}, {.section_bytes = 5}),
            (Documents{"\xc3\xa9\xc3\xa9|\xc3\xa9"}));
  const std::string exact(9, 'x');
  EXPECT_EQ(documents({write("exact.txt", exact)}, {.section_bytes = 9}), (Documents{exact}));
}

TEST_F(TextReading, ATextOfManySectionsComesBackWhole) {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "word" + std::to_string(i) + (i % 13 == 0 ? "\n" : " ");
  std::string read = documents({write("long.txt", text)})[0];
  std::erase(read, '|');
  EXPECT_EQ(read, text);
}

TEST_F(TextReading, ASplitLineEndsADocument) {
  const TextReaderOptions options{.split_line = "<|end|>"};
  EXPECT_EQ(documents({write("a.txt", "one\n<|end|>\ntwo <|end|>\nmore\n<|end|>\n<|end|>\nthree")}, options),
            (Documents{"one\n", "two <|end|>\nmore\n", "three"}));
  EXPECT_EQ(documents({write("crlf.txt", "<|end|>\r\none\r\n<|end|>\r\ntwo\n<|end|>x\n<|end|>")}, options),
            (Documents{"one\r\n", "two\n<|end|>x\n"}));
}

TEST_F(TextReading, ASplitLineIsFoundWhereverTheSectionsFall) {
  for (std::size_t section_bytes = 1; section_bytes < 40; ++section_bytes) {
    Documents found = documents({write("a.txt", "alpha beta\n--\ngamma delta epsilon\n--\nzeta")},
                                {.section_bytes = section_bytes, .split_line = "--"});
    for (std::string& document : found) std::erase(document, '|');
    EXPECT_EQ(found, (Documents{"alpha beta\n", "gamma delta epsilon\n", "zeta"})) << section_bytes;
  }
}

TEST_F(TextReading, JsonLinesAreDocuments) {
  const std::string lines =
      "{\"text\": \"one\\n\", \"id\": 1}\r\n\n{\"id\": 2, \"text\": \"caf\\u00e9\"}\n{\"text\": \"\"}\n{\"text\": "
      "\"last\"}";
  EXPECT_EQ(documents({write("a.jsonl", lines)}), (Documents{"one\n", "caf\xc3\xa9", "last"}));
  EXPECT_EQ(documents({write("b.ndjson", "{\"body\": \"one two\"}\n")}, {.section_bytes = 4, .text_field = "body"}),
            (Documents{"one| two"}));
}

TEST_F(TextReading, GzipIsKnownByItsBytes) {
  EXPECT_EQ(documents({write_gzip("a.txt.gz", "one\n"), write_gzip("b.jsonl.gz", "{\"text\": \"two\"}\n"),
                       write_gzip("c.txt", "three")}),
            (Documents{"one\n", "two", "three"}));
}

TEST_F(TextReading, AByteOrderMarkIsDropped) {
  EXPECT_EQ(documents({write("a.jsonl", "\xef\xbb\xbf{\"text\": \"one\"}\n"), write("b.txt", "\xef\xbb\xbftwo")}),
            (Documents{"one", "two"}));
}

TEST_F(TextReading, ABadJsonLineIsNamed) {
  const auto message = [&](const std::string& lines) {
    const std::string path = write("bad.jsonl", lines);
    const std::string text = test::message_of<DataError>([&] { documents({path}); });
    return text.starts_with(path) ? text.substr(path.size()) : text;
  };
  EXPECT_EQ(message("{\"text\": \"one\"}\n\n{\"content\": \"two\"}\n"), ":3: no \"text\"");
  EXPECT_EQ(message("{\"text\": 7}\n"), ":1: \"text\" is number, expected a string");
  EXPECT_EQ(message("[\"text\"]\n"), ":1: found array, expected an object");
  EXPECT_TRUE(message("{\"text\": \"one\"\n{}\n").starts_with(":1: not JSON: column 15"));
  EXPECT_TRUE(message("{\"text\": \"\\ud800\"}\n").starts_with(":1: not JSON: column"));
}

TEST_F(TextReading, DamagedGzipIsNamed) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string path = write_gzip("a.txt.gz", text);
  const auto size = fs::file_size(path);
  fs::resize_file(path, size / 2);
  EXPECT_EQ(test::message_of<DataError>([&] { documents({path}); }),
            path + ": cannot read on: the gzip stream is cut short");
  const std::string flipped = write_gzip("b.txt.gz", text);
  std::fstream file(flipped, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-6, std::ios::end);  // a byte of the stored checksum
  const char old = static_cast<char>(file.peek());
  file.seekp(-6, std::ios::end);
  file.put(static_cast<char>(old ^ 1));
  file.close();
  EXPECT_TRUE(test::message_of<DataError>([&] { documents({flipped}); }).starts_with(flipped + ": cannot read on: "));
}

TEST_F(TextReading, WhatIsNoTextIsRefusedByName) {
  using namespace std::string_literals;
  const auto message = [&](const std::string& name, const std::string& bytes) {
    const std::string path = write(name, bytes);
    return test::message_of<DataError>([&] { documents({path}); }).substr(path.size());
  };
  EXPECT_TRUE(message("a.parquet", "PAR1\x15"s).starts_with(": is Parquet; expected text"));
  EXPECT_TRUE(message("a.jsonl.zst", "\x28\xb5\x2f\xfd\0"s).starts_with(": is zstd; expected text"));
  EXPECT_TRUE(message("a.bin", "\x88\xd8\x34\x01\1\0\0\0"s).starts_with(": is an llm.c token file already"));
  EXPECT_TRUE(message("a.json", "[]").starts_with(": .json is not read"));
  EXPECT_TRUE(test::message_of<DataError>([&] {
                documents({directory_.string()});
              }).starts_with(directory_.string() + ": is a directory"));
}

}  // namespace
}  // namespace tessera
