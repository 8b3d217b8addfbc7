// Manifest ↔ JSON.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/hash_list.h"
#include "checkpoint/manifest.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHashBegin = "{\"manifest_hash\": \"";
constexpr std::string_view kHashEnd = "\",\n";
constexpr std::size_t kHexDigits = 16;
constexpr std::size_t kFirstLineBytes = kHashBegin.size() + kHexDigits + kHashEnd.size();
constexpr int kMaxDepth = 8;
constexpr std::string_view kFormat = "tessera-checkpoint";

// ---- writing

Json json_of(const Fields& fields) {
  Json object = Json::object();
  for (const auto& [name, value] : fields) object[name] = value;
  return object;
}

Json json_of(const std::optional<ResumeCertificate>& certificate) {
  if (!certificate) return nullptr;
  return {{"batch_digest", hex64(certificate->batch_digest)},
          {"learning_rate", certificate->learning_rate},
          {"rng_digest", hex64(certificate->rng_digest)},
          {"loss", certificate->loss}};
}

Json json_of(const TrainingState& state) {
  return {
      {"config", state.config},
      {"mesh",
       {{"dp", state.mesh.dp},
        {"pp", state.mesh.pp},
        {"tp", state.mesh.tp},
        {"strategy", state.mesh.strategy},
        {"wrap", state.mesh.wrap}}},
      {"data",
       {{"next_batch", state.data.next_batch},
        {"epoch", state.data.epoch},
        {"tokens_seen", state.data.tokens_seen},
        {"order_digest", hex64(state.data.order_digest)}}},
      {"schedule", {{"updates", state.schedule.updates}, {"decay_steps", state.schedule.decay_steps}}},
      {"loss_scaler",
       {{"scale", state.loss_scaler.scale},
        {"good_steps", state.loss_scaler.good_steps},
        {"skipped_steps", state.loss_scaler.skipped_steps}}},
      {"rng", {{"seed", hex64(state.rng.seed)}}},
      {"numerics", json_of(state.numerics)},
      {"certificate", json_of(state.certificate)},
  };
}

Json json_of(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"block_hashes", encode_hashes(file.block_hashes)}};
}

Json json_of(const TensorRecord& tensor) {
  Json slices = Json::array();
  for (const StoredSlice& slice : tensor.slices)
    slices.push_back(Json::array({slice.file, slice.file_offset, slice.offset, slice.count}));
  return {{"name", tensor.name},
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"slices", std::move(slices)},
          {"block_digests", encode_hashes(tensor.block_digests)}};
}

template <typename Record>
std::string lines(const std::vector<Record>& records) {
  std::string text = "[";
  for (const Record& record : records) text += (text.size() == 1 ? "\n" : ",\n") + json_of(record).dump();
  return text + "]";
}

// ---- reading

// One value with its place in the document, for messages.
class Node {
 public:
  Node(const Json& json, std::string path, std::string where)
      : json_(json), path_(std::move(path)), where_(std::move(where)) {}

  Node at(const char* field) const {
    expect(json_.is_object(), "an object");
    const auto value = json_.find(field);
    if (value == json_.end()) fail(fmt::format("lacks {}", field));
    return {*value, path_, where_.empty() ? field : fmt::format("{}.{}", where_, field)};
  }
  bool is_null() const { return json_.is_null(); }

  std::string text() const {
    expect(json_.is_string(), "a text");
    return json_.get<std::string>();
  }
  std::int64_t count() const {
    expect(json_.is_number_unsigned() && json_.get<std::uint64_t>() < std::uint64_t{1} << 53, "a count below 2^53");
    return json_.get<std::int64_t>();
  }
  int small_count() const {
    const std::int64_t value = count();
    expect(value <= std::numeric_limits<int>::max(), "a count below 2^31");
    return static_cast<int>(value);
  }
  double number() const {
    if (json_.is_null()) return std::nan("");
    expect(json_.is_number(), "a number");
    return json_.get<double>();
  }
  std::uint64_t hash() const {
    const std::vector<std::uint64_t> hashes = hash_list();
    expect(hashes.size() == 1, "16 hex digits");
    return hashes[0];
  }
  std::vector<std::uint64_t> hash_list() const {
    expect(json_.is_string(), "hex digits");
    std::vector<std::uint64_t> hashes;
    expect(decode_hashes(json_.get_ref<const std::string&>(), hashes), "list of hashes of 16 hex digits");
    return hashes;
  }
  Fields fields() const {
    expect(json_.is_object(), "an object");
    Fields fields;
    for (const auto& [name, value] : json_.items())
      fields.emplace_back(name, Node(value, path_, fmt::format("{}.{}", where_, name)).text());
    return fields;
  }
  std::vector<Node> elements() const {
    expect(json_.is_array(), "a list");
    std::vector<Node> nodes;
    for (const Json& element : json_) nodes.emplace_back(element, path_, fmt::format("{}[{}]", where_, nodes.size()));
    return nodes;
  }
  void expect(bool holds, const char* what) const {
    if (!holds) fail(fmt::format("is no {}", std::string_view(what).starts_with("a ") ? what + 2 : what));
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {} {}", path_, where_.empty() ? "the manifest" : where_, problem));
  }

  const Json& json_;
  std::string path_, where_;
};

std::optional<ResumeCertificate> certificate_of(const Node& node) {
  if (node.is_null()) return std::nullopt;
  return ResumeCertificate{.batch_digest = node.at("batch_digest").hash(),
                           .learning_rate = node.at("learning_rate").number(),
                           .rng_digest = node.at("rng_digest").hash(),
                           .loss = node.at("loss").number()};
}

TrainingState training_of(const Node& node) {
  const Node mesh = node.at("mesh"), data = node.at("data"), schedule = node.at("schedule");
  const Node scaler = node.at("loss_scaler");
  return {.config = node.at("config").text(),
          .mesh = {.dp = mesh.at("dp").small_count(),
                   .pp = mesh.at("pp").small_count(),
                   .tp = mesh.at("tp").small_count(),
                   .strategy = mesh.at("strategy").text(),
                   .wrap = mesh.at("wrap").text()},
          .data = {.next_batch = data.at("next_batch").count(),
                   .epoch = data.at("epoch").count(),
                   .tokens_seen = data.at("tokens_seen").count(),
                   .order_digest = data.at("order_digest").hash()},
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
  node.expect(numbers.size() == 4, "a list of four");
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

Json parse(const std::string& text, const std::string& path) {
  const auto bounded = [&](int depth, Json::parse_event_t /*event*/, const Json& /*value*/) {
    if (depth > kMaxDepth) throw CheckpointError(fmt::format("{}: JSON nested deeper than {} levels", path, kMaxDepth));
    return true;
  };
  try {
    return Json::parse(text, bounded);
  } catch (const Json::exception& error) {
    throw CheckpointError(fmt::format("{}: no JSON: {}", path, error.what()));
  }
}

void check_hash(const std::string& text, const std::string& path) {
  const std::string_view line(text.data(), std::min(text.size(), kFirstLineBytes));
  if (line.size() < kFirstLineBytes || !line.starts_with(kHashBegin) || !line.ends_with(kHashEnd))
    throw CheckpointError(fmt::format("{}: does not begin with its hash", path));
  const std::string expected = hex64(hash_string(std::string_view(text).substr(kFirstLineBytes)));
  // Compared as text: an upper-case digit is a flipped bit.
  const std::string_view found = line.substr(kHashBegin.size(), kHexDigits);
  if (found != expected)
    throw CheckpointError(fmt::format("{}: damaged: its hash is {}, it says {}", path, expected, found));
}

}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  const auto replace = Json::error_handler_t::replace;  // for a path in the job file that is no UTF-8
  std::string body = fmt::format("\"format\": \"{}\",\n\"version\": {},\n", kFormat, kCheckpointVersion);
  body += fmt::format("\"run_id\": \"{}\",\n\"step\": {},\n\"saved_at\": {},\n", hex64(manifest.run_id), manifest.step,
                      manifest.saved_at);
  body += fmt::format("\"root_hash\": \"{}\",\n\"state_hash\": \"{}\",\n", hex64(manifest.root_hash),
                      hex64(manifest.state_hash));
  body += fmt::format("\"model\": {},\n\"training\": {},\n", json_of(manifest.model).dump(-1, ' ', false, replace),
                      json_of(manifest.training).dump(-1, ' ', false, replace));
  body += fmt::format("\"files\": {},\n\"tensors\": {}}}\n", lines(manifest.files), lines(manifest.tensors));
  return fmt::format("{}{}{}{}", kHashBegin, hex64(hash_string(body)), kHashEnd, body);
}

Manifest decode_manifest(const std::string& text, const std::string& path) {
  check_hash(text, path);
  const Json json = parse(text, path);
  const Node root(json, path, "");
  if (const std::string format = root.at("format").text(); format != kFormat)
    throw CheckpointError(fmt::format("{}: format {}, {} expected", path, format, kFormat));
  if (const std::int64_t version = root.at("version").count(); version != kCheckpointVersion)
    throw CheckpointError(fmt::format("{}: version {}, this program reads {}", path, version, kCheckpointVersion));
  Manifest manifest{.run_id = root.at("run_id").hash(),
                    .step = root.at("step").count(),
                    .saved_at = root.at("saved_at").count(),
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
