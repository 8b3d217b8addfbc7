#include "runtime/config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

namespace tessera::config {
namespace {

constexpr std::string_view kNoAliases =
    "aliases (*name) are not accepted: write the value out, and quote a glob that begins with *";

// A job file needs four levels.
constexpr std::size_t kMaxDepth = 64;

// Builds the tree from parser events with a stack of its own, so that depth costs no call stack.
class TreeBuilder final : public YAML::EventHandler {
 public:
  YamlDocument take() && { return std::move(document_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(leaf(YamlNode::Kind::kNull, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, std::string(kNoAliases));
    add(leaf(YamlNode::Kind::kNull, mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode node = leaf(YamlNode::Kind::kScalar, mark);
    node.text = value;
    node.quoted = tag == "!";  // yaml-cpp marks plain scalars "?" and all others "!"
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    refuse_depth(mark);
    open_.push_back({leaf(YamlNode::Kind::kList, mark), {}, 0, false});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    refuse_depth(mark);
    open_.push_back({leaf(YamlNode::Kind::kMapping, mark), {}, 0, false});
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    std::string key;  // of a mapping: the key whose value comes next
    int key_line;
    bool has_key;
  };

  static YamlNode leaf(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    return node;
  }
  void refuse(const YAML::Mark& mark, std::string message) {
    document_.errors.push_back({mark.line + 1, std::move(message)});
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, "anchors (&name) are not accepted: write the value out");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      refuse(mark, fmt::format("tags ({}) are not accepted", printable(tag)));
  }

  // yaml-cpp has a limit of its own, and where it is reached says "bad file" with the line of the file's end.
  void refuse_depth(const YAML::Mark& mark) const {
    if (open_.size() >= kMaxDepth) {
      throw YAML::ParserException(mark, fmt::format("nested more than {} deep", kMaxDepth));
    }
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (open_.empty()) {
      document_.root = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.has_key) {
      parent.has_key = false;
      parent.node.entries.push_back({std::move(parent.key), parent.key_line, std::move(node)});
    } else {
      if (node.kind == YamlNode::Kind::kNull) node.text = "null";
      if (node.kind == YamlNode::Kind::kList || node.kind == YamlNode::Kind::kMapping) {
        document_.errors.push_back({node.line, fmt::format("the key is {}, expected a word", node.describe())});
      }
      parent.key = std::move(node.text);
      parent.key_line = node.line;
      parent.has_key = true;
    }
  }

  std::vector<Open> open_;
  YamlDocument document_;
};

// Length of the valid UTF-8 sequence at the front of text, 0 where there is none (RFC 3629: no overlong forms, no
// surrogates).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;
  if (first < 0xE0) return continues(1) ? 2 : 0;
  if (first < 0xF0) {
    if (!continues(1) || !continues(2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0;
    if (first == 0xED && byte(1) >= 0xA0) return 0;
    return 3;
  }
  if (first > 0xF4 || !continues(1) || !continues(2) || !continues(3)) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) >= 0x90) return 0;
  return 4;
}

// What is wrong with the bytes before any YAML is read; yaml-cpp would replace or mis-scan them in silence.
std::vector<YamlError> check_bytes(std::string_view text) {
  if (text.size() > kMaxYamlBytes) {
    return {{0, fmt::format("{} bytes, expected a job file of at most {}", text.size(), kMaxYamlBytes)}};
  }
  std::vector<YamlError> errors;
  int line = 1;
  bool indentation = true;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    const auto c = static_cast<unsigned char>(text[i]);
    if (length == 0) return {{line, fmt::format("byte 0x{:02X} is not UTF-8 text", c)}};
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F) {
      return {{line, fmt::format("control character 0x{:02X} in the text", c)}};
    }
    if (c == '\n') {
      ++line;
      indentation = true;
    } else if (c == '\t' && indentation) {
      const std::size_t next = text.find_first_not_of(" \t\r", i);
      if (next != std::string_view::npos && text[next] != '\n' && text[next] != '#') {
        errors.push_back({line, "tab in the indentation, expected spaces"});
      }
      indentation = false;
    } else if (c != ' ') {
      indentation = false;
    }
    i += length;
  }
  return errors;
}

// The line on which the quote opens that is still open at the end; 0 where none is. A quote opens a text only where a value or a key begins.
int line_of_open_quote(std::string_view text) {
  int line = 1, opened = 0;
  char quote = 0;
  char before = '\n';  // the last character that is no space
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quote != 0) {
      if (quote == '"' && c == '\\') {
        ++i;
        if (i < text.size() && text[i] == '\n') ++line;
      } else if (c == quote && quote == '\'' && i + 1 < text.size() && text[i + 1] == quote) {
        ++i;
      } else if (c == quote) {
        quote = 0;
        before = c;
      }
      continue;
    }
    if (c == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n')) {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if ((c == '"' || c == '\'') && std::string_view("\n:,[{-?").find(before) != std::string_view::npos) {
      quote = c;
      opened = line;
    } else if (c != ' ' && c != '\r') {
      before = c;
    }
  }
  return quote != 0 ? opened : 0;
}

std::string syntax_message(const std::string& message) {
  if (message.find("alias") != std::string::npos || message.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR))
    return std::string(kNoAliases);
  if (message == YAML::ErrorMsg::EOF_IN_SCALAR) return "not valid YAML: a quote is never closed";
  return fmt::format("not valid YAML: {}", message);
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_length) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= max_length) return out + "…";
    const std::size_t length = std::max<std::size_t>(1, utf8_length(text.substr(i)));
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7F || (c >= 0x80 && length == 1)) {
      out += fmt::format("\\x{:02X}", c);
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out;
}

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::kNull: return "nothing";
    case Kind::kList: return "a list";
    case Kind::kMapping: return "a mapping";
    case Kind::kScalar: break;
  }
  return quoted ? '"' + printable(text) + '"' : printable(text);
}

YamlDocument parse_yaml(std::string_view text) {
  YamlDocument refused;
  refused.errors = check_bytes(text);
  if (!refused.errors.empty()) return refused;

  TreeBuilder builder;
  try {
    // yaml-cpp takes a quote that is never closed for a scalar up to the end of the file, provided the file ends with a
    // line break: keys would vanish into a text in silence. A last line without a break makes it notice.
    std::istringstream stream{std::string(text) + "\n#"};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      const int line = std::move(second).take().root.line;
      refused.errors.push_back({line, "a second YAML document, expected one"});
      return refused;
    }
  } catch (const YAML::Exception& error) {
    int line = error.mark.is_null() ? 0 : error.mark.line + 1;
    // yaml-cpp notices at the end of the file; the mistake is where the text begins.
    if (const int opened = line_of_open_quote(text); opened > 0 && error.msg == YAML::ErrorMsg::EOF_IN_SCALAR)
      line = opened;
    refused.errors.push_back({line, syntax_message(error.msg)});
    return refused;
  } catch (const std::exception& error) {  // yaml-cpp lets std exceptions through for some malformed text
    refused.errors.push_back({0, fmt::format("not valid YAML: {}", error.what())});
    return refused;
  }
  return std::move(builder).take();
}

}  // namespace tessera::config
