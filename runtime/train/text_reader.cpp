#include "runtime/train/text_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "runtime/base/error.h"
#include "runtime/train/foreign_format.h"

namespace tessera {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kLongestJsonLine = std::size_t{256} << 20;
constexpr std::string_view kExpectedText = "expected text, JSON lines (.jsonl), or either of them as .gz";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string first_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw DataError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  std::string head(512, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));
  return head;
}

bool is_gzip(std::string_view head) {
  return head.starts_with("\x1f\x8b");
}

// The extension that says how documents lie in the file: that before .gz.
std::string inner_extension(const std::string& path) {
  std::filesystem::path name = std::filesystem::path(path).filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.extension().string();
}

void refuse_foreign(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw DataError(fmt::format("{}: is a directory; {}", path, kExpectedText),
                    fmt::format("'{}/*.txt' names its files", path));
  }
  // A pipe cannot be looked at first and read afterwards.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    throw DataError(fmt::format("{}: is not a regular file", path), "write the text to a file first");
  }
  const std::string head = first_bytes(path);
  if (is_gzip(head)) return;
  if (head.starts_with("\x88\xd8\x34\x01") || head.starts_with("\xa1\xd9\x34\x01")) {
    throw DataError(fmt::format("{}: is an llm.c token file already; {}", path, kExpectedText),
                    "name it in data.train as it is");
  }
  if (const auto name = foreign_format(std::as_bytes(std::span(head)))) {
    throw DataError(fmt::format("{}: is {}; {}", path, *name, kExpectedText),
                    name == "zstd" ? "zstd -d unpacks it" : "");
  }
  if (inner_extension(path) == ".json") {
    throw DataError(fmt::format("{}: .json is not read; {}", path, kExpectedText),
                    "one object per line, in a file named .jsonl");
  }
}

// Bytes of a plain or gzip file.
class ByteSource {
 public:
  explicit ByteSource(std::string path) : path_(std::move(path)), file_(::gzopen(path_.c_str(), "rb")) {
    if (file_ == nullptr) throw DataError(fmt::format("{}: cannot open: {}", path_, std::strerror(errno)));
    ::gzbuffer(file_, static_cast<unsigned>(kReadBytes));
  }
  ~ByteSource() { ::gzclose(file_); }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Appends up to kReadBytes; false at the end of the file.
  bool append_to(std::string& buffer) {
    const std::size_t old = buffer.size();
    buffer.resize(old + kReadBytes);
    const int got = ::gzread(file_, buffer.data() + old, static_cast<unsigned>(kReadBytes));
    buffer.resize(old + static_cast<std::size_t>(std::max(got, 0)));
    int code = Z_OK;
    const char* message = ::gzerror(file_, &code);
    // A gzip file that ends early gives what it holds, and Z_BUF_ERROR.
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      throw DataError(fmt::format("{}: cannot read on: {}", path_,
                                  code == Z_ERRNO       ? std::strerror(errno)
                                  : code == Z_BUF_ERROR ? "the gzip stream is cut short"
                                                        : message));
    }
    return got > 0;
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  gzFile file_;
};

}  // namespace

std::size_t section_end(std::string_view text, std::size_t section_bytes) {
  if (text.size() <= section_bytes) return text.size();
  const std::string_view part = text.substr(0, section_bytes);
  if (const std::size_t line = part.rfind('\n'); line != std::string_view::npos) return line + 1;
  if (const std::size_t space = part.rfind(' '); space != std::string_view::npos && space > 0) return space;
  std::size_t cut = section_bytes;
  // Back to the start of a character, which is at most three bytes away in UTF-8.
  for (int i = 0; i < 3 && cut > 1 && (static_cast<std::uint8_t>(text[cut]) & 0xc0) == 0x80; ++i) --cut;
  return cut;
}

struct TextReader::State {
  State(std::vector<std::string> names, TextReaderOptions given) : paths(std::move(names)), options(std::move(given)) {
    for (const std::string& path : paths) refuse_foreign(path);
    require(options.section_bytes > 0, "TextReader: section_bytes is positive");
  }

  // Reads until buffer[position …] holds at least `bytes`, or the file ends.
  void fill(std::size_t bytes) {
    if (position > kReadBytes) {
      buffer.erase(0, position);
      position = 0;
    }
    while (!at_end && buffer.size() - position < bytes) at_end = !source->append_to(buffer);
  }

  void open(const std::string& path) {
    source.emplace(path);
    const std::string extension = inner_extension(path);
    is_json = extension == ".jsonl" || extension == ".ndjson";
    buffer.clear();
    position = 0, line = 0;
    at_end = false, in_document = false, at_line_start = true;
    fill(kByteOrderMark.size());
    if (buffer.starts_with(kByteOrderMark)) position = kByteOrderMark.size();
  }

  // A section of `text`, the rest of a document that ends there where `whole` is set. Returns the bytes taken.
  std::size_t take(std::string_view text, bool whole, TextSection& section) {
    const std::size_t size = section_end(text, options.section_bytes);
    section.text.assign(text.substr(0, size));
    section.starts_document = !in_document;
    section.ends_document = whole && size == text.size();
    in_document = !section.ends_document;
    return size;
  }

  // Offset of the first split line in text that starts at a line's start, and the length to drop with it.
  std::pair<std::size_t, std::size_t> find_split(std::string_view text) const {
    const std::string& split = options.split_line;
    for (std::size_t at = text.find(split); at != std::string_view::npos; at = text.find(split, at + 1)) {
      std::size_t end = at + split.size();
      if (at > 0 ? text[at - 1] != '\n' : !at_line_start) continue;
      if (end < text.size() && text[end] == '\r') ++end;
      if (end < text.size() && text[end] != '\n') continue;
      return {at, std::min(end + 1, text.size()) - at};
    }
    return {std::string_view::npos, 0};
  }

  bool next_plain(TextSection& section) {
    const std::size_t slack = options.split_line.size() + 3;
    for (;;) {
      fill(options.section_bytes + slack);
      std::string_view rest = std::string_view(buffer).substr(position);
      if (rest.empty()) return false;
      bool whole = at_end;
      std::size_t drop = 0;
      if (!options.split_line.empty()) {
        const auto [at, length] = find_split(rest);
        if (at != std::string_view::npos) {
          rest = rest.substr(0, at);
          drop = length;
          whole = true;
        }
      }
      if (rest.empty() && !in_document) {  // an empty document
        position += drop;
        at_line_start = true;
        continue;
      }
      const std::size_t taken = take(rest, whole, section);
      position += taken + (section.ends_document ? drop : 0);
      at_line_start = section.ends_document || section.text.ends_with('\n');
      return true;
    }
  }

  [[noreturn]] void refuse_line(std::string_view what) const {
    throw DataError(fmt::format("{}:{}: {}", source->path(), line, what),
                    fmt::format("each line is an object with its text in \"{}\"", options.text_field));
  }

  // The next line of the file, without its end; false at the end of the file.
  bool read_line(std::string_view& text) {
    std::size_t searched = 0, end = std::string::npos;
    for (;;) {
      end = buffer.find('\n', position + searched);
      if (end != std::string::npos || at_end) break;
      searched = buffer.size() - position;
      if (searched > kLongestJsonLine) {
        ++line;
        refuse_line(fmt::format("the line is longer than {} bytes", kLongestJsonLine));
      }
      fill(searched + 1);
    }
    if (position >= buffer.size()) return false;
    ++line;
    const std::size_t stop = std::min(end, buffer.size());
    text = std::string_view(buffer).substr(position, stop - position);
    position = std::min(stop + 1, buffer.size());
    return true;
  }

  bool next_json(TextSection& section) {
    while (!in_document) {
      std::string_view text;
      if (!read_line(text)) return false;
      if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      nlohmann::json object;
      try {
        object = nlohmann::json::parse(text);
      } catch (const nlohmann::json::exception& error) {
        const std::string what = error.what();  // "[json.exception…] parse error at line 1, column 5: …"
        const std::size_t column = what.find("column");
        refuse_line(fmt::format("not JSON: {}", column == std::string::npos ? what : what.substr(column)));
      }
      if (!object.is_object()) refuse_line(fmt::format("found {}, expected an object", object.type_name()));
      const auto found = object.find(options.text_field);
      if (found == object.end()) refuse_line(fmt::format("no \"{}\"", options.text_field));
      if (!found->is_string())
        refuse_line(fmt::format("\"{}\" is {}, expected a string", options.text_field, found->type_name()));
      document = found->get<std::string>();
      document_position = 0;
      if (!document.empty()) break;
    }
    document_position += take(std::string_view(document).substr(document_position), true, section);
    return true;
  }

  bool next(TextSection& section) {
    for (;;) {
      if (!source) {
        if (file == paths.size()) return false;
        open(paths[file++]);
      }
      if (is_json ? next_json(section) : next_plain(section)) return true;
      source.reset();
    }
  }

  std::vector<std::string> paths;
  TextReaderOptions options;
  std::size_t file = 0;
  std::optional<ByteSource> source;
  std::string buffer;
  std::size_t position = 0;
  bool at_end = false, is_json = false, in_document = false, at_line_start = true;
  std::int64_t line = 0;
  std::string document;  // of the JSON line being handed out
  std::size_t document_position = 0;
};

TextReader::TextReader(std::vector<std::string> paths, TextReaderOptions options)
    : state_(std::make_unique<State>(std::move(paths), std::move(options))) {}
TextReader::~TextReader() = default;

bool TextReader::next(TextSection& section) {
  return state_->next(section);
}

std::uint64_t estimate_text_bytes(const std::vector<std::string>& paths) {
  std::uint64_t total = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(path, error);
    if (!error) total += is_gzip(first_bytes(path)) ? 3 * size : size;
  }
  return total;
}

}  // namespace tessera
