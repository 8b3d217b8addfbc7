#include "checkpoint/safetensors_json.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace tessera {
namespace {

using Json = nlohmann::json;

// Walks {"__metadata__": {text: text}, NAME: {"dtype": text, "shape": [numbers], "data_offsets": [begin, end]}}.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(SafetensorsHeader& header) : header_(header) {}
  const std::string& problem() const { return problem_; }

  bool null() override { return refuse("null"); }
  bool boolean(bool /*value*/) override { return refuse("a truth value"); }
  bool number_float(double /*value*/, const std::string& text) override { return refuse("the number " + text); }
  bool number_integer(std::int64_t value) override { return refuse(fmt::format("the number {}", value)); }
  bool binary(Json::binary_t& /*value*/) override { return refuse("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return refuse(fmt::format("the number {}", value));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return stop(fmt::format("{} of {} does not fit 63 bits: {}", key_, name_, value));
    if (place_ == Place::kShape) {
      tensor().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (num_offsets_ == 2) return stop(fmt::format("data_offsets of {} are more than two", name_));
    (num_offsets_++ == 0 ? tensor().begin : tensor().end) = value;
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(key_, std::move(value)).second) return stop(fmt::format("{} stands twice", key_));
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return refuse("a text");
    tensor().dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (place_ == Place::kStart) return enter(Place::kRoot);
    if (place_ != Place::kRoot) return refuse("an object");
    if (name_ == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return stop("__metadata__ stands twice");
      return enter(Place::kMetadata);
    }
    header_.tensors.emplace_back().name = name_;
    seen_ = {};
    return enter(Place::kTensor);
  }

  bool key(std::string& key) override {
    if (place_ == Place::kRoot) {
      name_ = std::move(key);
      return true;
    }
    key_ = std::move(key);
    if (place_ == Place::kMetadata) return true;
    bool* seen = key_ == "dtype" ? &seen_.dtype : key_ == "shape" ? &seen_.shape : nullptr;
    if (key_ == "data_offsets") seen = &seen_.offsets;
    if (seen == nullptr) return stop(fmt::format("{} has an unknown field, {}", name_, key_));
    if (std::exchange(*seen, true)) return stop(fmt::format("{} has {} twice", name_, key_));
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kRoot) return enter(Place::kEnd);
    if (place_ == Place::kTensor && !(seen_.dtype && seen_.shape && seen_.offsets))
      return stop(fmt::format("{} lacks dtype, shape or data_offsets", name_));
    return enter(Place::kRoot);
  }

  bool start_array(std::size_t /*size*/) override {
    if (place_ == Place::kTensor && key_ == "shape") return enter(Place::kShape);
    if (place_ == Place::kTensor && key_ == "data_offsets") {
      num_offsets_ = 0;
      return enter(Place::kOffsets);
    }
    return refuse("an array");
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && num_offsets_ != 2)
      return stop(fmt::format("data_offsets of {} are not two", name_));
    return enter(Place::kTensor);
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& error) override {
    // The library's text differs between its releases and repeats the bytes it stumbled over.
    const bool encoding = std::string_view(error.what()).find("UTF-8") != std::string_view::npos;
    return stop(fmt::format("the header is no {}, at byte {}", encoding ? "UTF-8" : "JSON", position));
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };
  struct Fields {
    bool dtype = false, shape = false, offsets = false;
  };

  SafetensorsEntry& tensor() { return header_.tensors.back(); }
  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool stop(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool refuse(const std::string& what) {
    const std::string where = place_ == Place::kStart  ? "the header is"
                              : place_ == Place::kRoot ? fmt::format("{} is", name_)
                                                       : fmt::format("{} of {} holds", key_, name_);
    return stop(fmt::format("{} {}, which the format does not have there", where, what));
  }

  SafetensorsHeader& header_;
  Place place_ = Place::kStart;
  std::string name_, key_, problem_;
  Fields seen_;
  int num_offsets_ = 0;
  bool has_metadata_ = false;
};

}  // namespace

std::string parse_safetensors_json(std::string_view text, SafetensorsHeader& header) {
  HeaderHandler handler(header);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.problem();
}

}  // namespace tessera
