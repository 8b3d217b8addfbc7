#include "runtime/train/json_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// A value in a message: short ones as they are.
std::string shown(const Json& value) {
  if (value.is_object()) return fmt::format("an object of {} members", value.size());
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr std::size_t most = 80;
  return text.size() <= most ? text : text.substr(0, most) + "…";
}

}  // namespace

std::string read_text_file(const std::string& path, std::uint64_t most_bytes) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) throw DataError(fmt::format("{}: cannot read: {}", path, error.message()));
  if (size > most_bytes) throw DataError(fmt::format("{}: {} bytes, expected at most {}", path, size, most_bytes));
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in || in.gcount() != static_cast<std::streamsize>(size)) throw DataError(fmt::format("{}: cannot read", path));
  return text;
}

Json parse_json(std::string_view text, const std::string& path) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    std::string what = error.what();  // "[json.exception…] parse error at line 1, column 5: …"
    if (const std::size_t at = what.find("line "); at != std::string::npos) what = what.substr(at);
    std::replace(what.begin(), what.end(), '\n', ' ');
    constexpr std::size_t most = 200;
    throw DataError(fmt::format("{}: is no JSON: {}", path, what.substr(0, most)));
  }
}

void JsonField::fail(std::string_view what) const {
  throw DataError(fmt::format("{}: {}: {}", file_, place_.empty() ? "the file" : place_, what));
}

void JsonField::refuse(std::string_view expected) const {
  fail(fmt::format("found {}, expected {}", shown(*value_), expected));
}

bool JsonField::is_null() const {
  return value_->is_null();
}

std::size_t JsonField::size() const {
  return value_->size();
}

void JsonField::check_object() const {
  if (!value_->is_object()) refuse("an object");
}

void JsonField::check_array() const {
  if (!value_->is_array()) refuse("an array");
}

JsonField JsonField::at(const char* member) const {
  check_object();
  const auto found = value_->find(member);
  std::string place = place_.empty() ? member : fmt::format("{}.{}", place_, member);
  if (found == value_->end()) throw DataError(fmt::format("{}: {}: is missing", file_, place));
  return {*found, file_, std::move(place)};
}

JsonField JsonField::at(std::size_t index) const {
  check_array();
  std::string place = fmt::format("{}[{}]", place_, index);
  if (index >= value_->size()) throw DataError(fmt::format("{}: {}: is missing", file_, place));
  return {(*value_)[index], file_, std::move(place)};
}

bool JsonField::has(const char* member) const {
  check_object();
  const auto found = value_->find(member);
  return found != value_->end() && !found->is_null();
}

void JsonField::only(std::initializer_list<std::string_view> known) const {
  check_object();
  for (const auto& [name, value] : value_->items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    JsonField(value, file_, place_.empty() ? name : place_ + "." + name).fail("is not supported");
  }
}

const std::string& JsonField::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonField::flag() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

bool JsonField::flag_or(const char* member, bool absent) const {
  return has(member) ? at(member).flag() : absent;
}

std::uint32_t JsonField::id(std::uint32_t below) const {
  if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() >= below) {
    refuse(below == std::numeric_limits<std::uint32_t>::max() ? "a token id"
                                                              : fmt::format("a token id below {}", below));
  }
  return value_->get<std::uint32_t>();
}

}  // namespace tessera
