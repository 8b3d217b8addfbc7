// JSON → Manifest.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/hash_list.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_text.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMaxDepth = 8;
// Ours have some thirty. This kind of JSON looks through all keys of an object for each new one.
constexpr int kMaxKeys = 1000;

// One value with its place in the document, for messages.
class Node {
 public:
  Node(const OrderedJson& json, std::string path, std::string where)
      : json_(json), path_(std::move(path)), where_(std::move(where)) {}

  Node at(const char* field) const {
    expect(json_.is_object(), "object");
    const auto value = json_.find(field);
    if (value == json_.end()) fail(fmt::format("lacks {}", field));
    return {*value, path_, where_.empty() ? field : fmt::format("{}.{}", where_, field)};
  }
  bool has(const char* field) const { return json_.is_object() && json_.contains(field); }
  bool is_null() const { return json_.is_null(); }

  bool flag() const {
    expect(json_.is_boolean(), "truth value");
    return json_.get<bool>();
  }

  std::string text() const {
    expect(json_.is_string(), "text");
    return json_.get<std::string>();
  }
  std::int64_t count() const {
    expect(json_.is_number_unsigned() && json_.get<std::uint64_t>() < std::uint64_t{1} << 53, "count below 2^53");
    return json_.get<std::int64_t>();
  }
  int small_count() const {
    const std::int64_t value = count();
    expect(value <= std::numeric_limits<int>::max(), "count below 2^31");
    return static_cast<int>(value);
  }
  double number() const {
    if (json_.is_null()) return std::nan("");
    expect(json_.is_number(), "number");
    return json_.get<double>();
  }
  std::uint64_t hash() const {
    const std::vector<std::uint64_t> hashes = hash_list();
    expect(hashes.size() == 1, "hash of 16 hex digits");
    return hashes[0];
  }
  std::vector<std::uint64_t> hash_list() const {
    expect(json_.is_string(), "text of hex digits");
    std::vector<std::uint64_t> hashes;
    expect(decode_hashes(json_.get_ref<const std::string&>(), hashes), "list of hashes of 16 hex digits");
    return hashes;
  }
  Fields fields() const {
    expect(json_.is_object(), "object");
    Fields fields;
    for (const auto& [name, value] : json_.items())
      fields.emplace_back(name, Node(value, path_, fmt::format("{}.{}", where_, name)).text());
    return fields;
  }
  std::vector<Node> elements() const {
    expect(json_.is_array(), "list");
    std::vector<Node> nodes;
    for (const OrderedJson& element : json_)
      nodes.emplace_back(element, path_, fmt::format("{}[{}]", where_, nodes.size()));
    return nodes;
  }
  void expect(bool holds, const char* what) const {
    if (!holds) fail(fmt::format("is no {}", what));
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {} {}", path_, where_.empty() ? "the manifest" : where_, problem));
  }

  const OrderedJson& json_;
  std::string path_, where_;
};

std::optional<ResumeCertificate> certificate_of(const Node& node) {
  if (node.is_null()) return std::nullopt;
  return ResumeCertificate{.batch_digest = node.at("batch_digest").hash(),
                           .learning_rate = node.at("learning_rate").number(),
                           .rng_digest = node.at("rng_digest").hash(),
                           .loss = node.at("loss").number()};
}

DataCursor data_of(const Node& node) {
  DataCursor data{.next_batch = node.at("next_batch").count(),
                  .epoch = node.at("epoch").count(),
                  .tokens_seen = node.at("tokens_seen").count(),
                  .order_digest = node.at("order_digest").hash()};
  if (!node.has("files")) return data;  // the first manifests of version 1
  data.first_batch = node.at("first_batch").count();
  data.first_epoch = node.at("first_epoch").count();
  node.expect(data.first_batch <= data.next_batch, "cursor: its files come into use after its next batch");
  for (const Node& file : node.at("files").elements()) {
    data.files.push_back({.name = file.at("name").text(),
                          .tokens = file.at("tokens").count(),
                          .format = file.at("format").text(),
                          .source = file.at("source").count()});
  }
  return data;
}

TrainingState training_of(const Node& node) {
  const Node mesh = node.at("mesh"), schedule = node.at("schedule");
  const Node scaler = node.at("loss_scaler");
  return {.config = node.at("config").text(),
          .mesh = {.dp = mesh.at("dp").small_count(),
                   .pp = mesh.at("pp").small_count(),
                   .tp = mesh.at("tp").small_count(),
                   .strategy = mesh.at("strategy").text(),
                   .wrap = mesh.at("wrap").text()},
          .data = data_of(node.at("data")),
          .schedule = {.updates = schedule.at("updates").count(), .decay_steps = schedule.at("decay_steps").count()},
          .loss_scaler = {.scale = scaler.at("scale").number(),
                          .good_steps = scaler.at("good_steps").count(),
                          .skipped_steps = scaler.at("skipped_steps").count()},
          .rng = {.seed = node.at("rng").at("seed").hash()},
          .numerics = node.at("numerics").fields(),
          .certificate = certificate_of(node.at("certificate"))};
}

FileRecord file_of(const Node& node) {
  return {.name = node.at("name").text(),
          .bytes = static_cast<std::uint64_t>(node.at("bytes").count()),
          .block_hashes = node.at("block_hashes").hash_list()};
}

StoredSlice slice_of(const Node& node) {
  const std::vector<Node> numbers = node.elements();
  node.expect(numbers.size() == 4, "list of four");
  return {.file = numbers[0].small_count(),
          .file_offset = static_cast<std::uint64_t>(numbers[1].count()),
          .offset = numbers[2].count(),
          .count = numbers[3].count()};
}

TensorRecord tensor_of(const Node& node) {
  TensorRecord tensor{.name = node.at("name").text(), .dtype = node.at("dtype").text()};
  for (const Node& extent : node.at("shape").elements()) tensor.shape.push_back(extent.count());
  for (const Node& slice : node.at("slices").elements()) tensor.slices.push_back(slice_of(slice));
  tensor.block_digests = node.at("block_digests").hash_list();
  return tensor;
}

OrderedJson parse(const std::string& text, const std::string& path) {
  std::array<int, kMaxDepth + 2> num_keys{};  // of the open object on each level
  const auto bounded = [&](int depth, OrderedJson::parse_event_t event, const OrderedJson& /*value*/) {
    if (depth > kMaxDepth) throw CheckpointError(fmt::format("{}: JSON nested deeper than {} levels", path, kMaxDepth));
    // The keys of an object are one level below it.
    if (event == OrderedJson::parse_event_t::object_start) num_keys[static_cast<std::size_t>(depth) + 1] = 0;
    if (event == OrderedJson::parse_event_t::key && ++num_keys[static_cast<std::size_t>(depth)] > kMaxKeys)
      throw CheckpointError(fmt::format("{}: an object of more than {} fields", path, kMaxKeys));
    return true;
  };
  try {
    return OrderedJson::parse(text, bounded);
  } catch (const OrderedJson::exception& error) {
    throw CheckpointError(fmt::format("{}: no JSON: {}", path, error.what()));
  }
}

void check_hash(const std::string& text, const std::string& path) {
  const std::string_view line(text.data(), std::min(text.size(), kHashLineBytes));
  if (line.size() < kHashLineBytes || !line.starts_with(kHashLineBegin) || !line.ends_with(kHashLineEnd))
    throw CheckpointError(fmt::format("{}: does not begin with its hash", path));
  const std::string expected = hex64(hash_string(std::string_view(text).substr(kHashLineBytes)));
  // Compared as text: an upper-case digit is a flipped bit.
  const std::string_view found = line.substr(kHashLineBegin.size(), kHashDigits);
  if (found != expected)
    throw CheckpointError(fmt::format("{}: damaged: its hash is {}, it says {}", path, expected, found));
}

}  // namespace

Manifest decode_manifest(const std::string& text, const std::string& path) {
  check_hash(text, path);
  const OrderedJson json = parse(text, path);
  const Node root(json, path, "");
  if (const std::string format = root.at("format").text(); format != kManifestFormat)
    throw CheckpointError(fmt::format("{}: format {}, {} expected", path, format, kManifestFormat));
  if (const std::int64_t version = root.at("version").count(); version != kCheckpointVersion)
    throw CheckpointError(fmt::format("{}: version {}, this program reads {}", path, version, kCheckpointVersion));
  Manifest manifest{.run_id = root.at("run_id").hash(),
                    .step = root.at("step").count(),
                    .saved_at = root.at("saved_at").count(),
                    .weights_only = root.has("weights_only") && root.at("weights_only").flag(),
                    .model = root.at("model").fields(),
                    .training = training_of(root.at("training")),
                    .root_hash = root.at("root_hash").hash(),
                    .state_hash = root.at("state_hash").hash()};
  for (const Node& file : root.at("files").elements()) manifest.files.push_back(file_of(file));
  for (const Node& tensor : root.at("tensors").elements()) manifest.tensors.push_back(tensor_of(tensor));
  validate(manifest, path);
  return manifest;
}

}  // namespace tessera
