// A YAML document as a plain tree that keeps what strictness needs and yaml-cpp's own nodes drop: duplicate keys, the
// line of every key, the text of every scalar, and whether it was quoted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMapping };

  Kind kind = Kind::kNull;
  int line = 0;  // 1-based; 0 for what came from --set
  bool from_override = false;
  std::string text;  // of a scalar, as written (quotes and escapes removed)
  bool quoted = false;
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;  // in file order, duplicates included

  // For messages: 10, "10" (quoted), nothing, a list, a mapping. Long text is cut, control characters are escaped.
  std::string describe() const;
};

struct YamlEntry {
  std::string key;
  int line = 0;
  YamlNode value;
};

struct YamlError {
  int line = 0;
  std::string message;
};

// Either root is meaningful or errors are not empty. An empty document gives a kNull root.
struct YamlDocument {
  YamlNode root;
  std::vector<YamlError> errors;
};

// Never throws for any bytes. Refused besides bad syntax: text that is not UTF-8, control characters, tabs in
// indentation, anchors, aliases, tags, keys that are not words, a second document, more than kMaxYamlBytes.
YamlDocument parse_yaml(std::string_view text);
inline constexpr std::size_t kMaxYamlBytes = 1 << 20;

// The text with control characters escaped and at most max_length bytes kept.
std::string printable(std::string_view text, std::size_t max_length = 60);

}  // namespace tessera::config
