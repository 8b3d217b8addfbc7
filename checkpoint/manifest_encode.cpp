// Manifest → JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/hash_list.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_text.h"
#include "runtime/base/hash.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const Fields& fields) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [name, value] : fields) object[name] = value;
  return object;
}

OrderedJson json_of(const std::optional<ResumeCertificate>& certificate) {
  if (!certificate) return nullptr;
  return {{"batch_digest", hex64(certificate->batch_digest)},
          {"learning_rate", certificate->learning_rate},
          {"rng_digest", hex64(certificate->rng_digest)},
          {"loss", certificate->loss}};
}

OrderedJson json_of(const DataCursor& data) {
  OrderedJson files = OrderedJson::array();
  for (const DataFile& file : data.files) {
    files.push_back({{"name", file.name}, {"tokens", file.tokens}, {"format", file.format}, {"source", file.source}});
  }
  return {{"next_batch", data.next_batch},   {"epoch", data.epoch},
          {"tokens_seen", data.tokens_seen}, {"order_digest", hex64(data.order_digest)},
          {"first_batch", data.first_batch}, {"first_epoch", data.first_epoch},
          {"files", std::move(files)}};
}

OrderedJson json_of(const TrainingState& state) {
  return {
      {"config", state.config},
      {"mesh",
       {{"dp", state.mesh.dp},
        {"pp", state.mesh.pp},
        {"tp", state.mesh.tp},
        {"strategy", state.mesh.strategy},
        {"wrap", state.mesh.wrap}}},
      {"data", json_of(state.data)},
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

OrderedJson json_of(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"block_hashes", encode_hashes(file.block_hashes)}};
}

OrderedJson json_of(const TensorRecord& tensor) {
  OrderedJson slices = OrderedJson::array();
  for (const StoredSlice& slice : tensor.slices)
    slices.push_back(OrderedJson::array({slice.file, slice.file_offset, slice.offset, slice.count}));
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

}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  const auto replace = OrderedJson::error_handler_t::replace;  // for a path in the job file that is no UTF-8
  std::string body = fmt::format("\"format\": \"{}\",\n\"version\": {},\n", kManifestFormat, kCheckpointVersion);
  body += fmt::format("\"run_id\": \"{}\",\n\"step\": {},\n\"saved_at\": {},\n", hex64(manifest.run_id), manifest.step,
                      manifest.saved_at);
  if (manifest.weights_only) body += "\"weights_only\": true,\n";
  body += fmt::format("\"root_hash\": \"{}\",\n\"state_hash\": \"{}\",\n", hex64(manifest.root_hash),
                      hex64(manifest.state_hash));
  body += fmt::format("\"model\": {},\n\"training\": {},\n", json_of(manifest.model).dump(-1, ' ', false, replace),
                      json_of(manifest.training).dump(-1, ' ', false, replace));
  body += fmt::format("\"files\": {},\n\"tensors\": {}}}\n", lines(manifest.files), lines(manifest.tensors));
  return fmt::format("{}{}{}{}", kHashLineBegin, hex64(hash_string(body)), kHashLineEnd, body);
}

}  // namespace tessera
