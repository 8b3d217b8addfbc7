// Documents from text files, in bounded memory. A file is gzip where its bytes say so; its name, without .gz, says how
// documents lie in it: .jsonl and .ndjson hold one JSON object per line, whose text field is a document; any other file
// is one document, or several where a split line is given. Long documents come in sections, so that no document need
// fit in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct TextReaderOptions {
  std::size_t section_bytes = std::size_t{64} << 10;
  std::string text_field = "text";  // of JSON lines
  std::string
      split_line;  // of plain text: a line equal to it ends a document and is dropped; "": a file is one document
};

// A document, or a part of one: at most section_bytes, cut after a line's end where there is one, else before a space,
// never inside a character.
struct TextSection {
  std::string text;
  bool starts_document = false;
  bool ends_document = false;
};

class TextReader {
 public:
  // DataError for what is no text by its first bytes or name (Parquet, zstd, a directory …).
  TextReader(std::vector<std::string> paths, TextReaderOptions options);
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  // The next section in the order of the files; false at the end. Empty documents are passed over. DataError names file
  // and line (JSON), or file (damaged or cut gzip).
  bool next(TextSection& section);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Where the first section of text ends; text.size() where it fits. Exposed for tests.
std::size_t section_end(std::string_view text, std::size_t section_bytes);

// Bytes of text in the files; for gzip an estimate (three times its size).
std::uint64_t estimate_text_bytes(const std::vector<std::string>& paths);

}  // namespace tessera
