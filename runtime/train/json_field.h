// Reading JSON strictly: a value that knows its place in its file, so that every refusal names it. For .cpp files alone.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera {

// The whole of a file that holds JSON. DataError where it cannot be read, is larger than `most_bytes` or is no JSON.
std::string read_text_file(const std::string& path, std::uint64_t most_bytes);
nlohmann::json parse_json(std::string_view text, const std::string& path);

class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string file, std::string place)
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }  // "model.merges[3]"
  bool is_null() const;
  std::size_t size() const;

  // DataError where the value is of another type, has no such member, or has one besides `known`.
  JsonField at(const char* member) const;
  JsonField at(std::size_t index) const;
  bool has(const char* member) const;  // and it is not null
  void only(std::initializer_list<std::string_view> known) const;
  void check_object() const;
  void check_array() const;
  const std::string& text() const;
  bool flag() const;
  bool flag_or(const char* member, bool absent) const;
  std::uint32_t id(std::uint32_t below = std::numeric_limits<std::uint32_t>::max()) const;

  // "FILE: model.type: found "WordPiece", expected "BPE"".
  [[noreturn]] void refuse(std::string_view expected) const;
  [[noreturn]] void fail(std::string_view what) const;  // "FILE: model.vocab: …"

 private:
  const nlohmann::json* value_;
  std::string file_, place_;
};

}  // namespace tessera
