#include "runtime/train/load_weights.h"

#include <algorithm>
#include <iterator>

#include "checkpoint/reader.h"
#include "runtime/train/run_state.h"

namespace tessera {

Fields expected_weight_fields(const ModelConfig& model, const Fields& saved) {
  Fields fields = model_fields(model);
  if (model.positions != "rope") return fields;
  const auto is_seq_len = [](const Fields::value_type& field) { return field.first == "seq_len"; };
  const auto from = std::ranges::find_if(saved, is_seq_len);
  const auto to = std::ranges::find_if(fields, is_seq_len);
  if (from != saved.end() && to != fields.end()) to->second = from->second;
  return fields;
}

std::vector<ExpectedTensor> expected_weights(const ModelSpec& model) {
  std::vector<ExpectedTensor> tensors;
  for (const ParameterSpec& parameter : model.parameters)
    tensors.push_back({parameter.name, extents_of(parameter.shape)});
  return tensors;
}

std::vector<TargetSlice> weight_targets(const ShardedModel& model) {
  std::vector<TargetSlice> targets;
  for (int u = 0; u < model.num_units(); ++u) {
    const ShardedUnit& unit = model.unit(u);
    std::ranges::move(target_slices(model.model(), unit.layout(), model.groups().shard, "", unit.parameter_shard()),
                      std::back_inserter(targets));
  }
  return targets;
}

Manifest load_weights(FileSystem& files, const std::string& folder, const ModelConfig& config, ShardedModel& model,
                      StreamView compute) {
  CheckpointReader reader = CheckpointReader::open(files, folder);
  const Manifest& manifest = reader.manifest();
  check_model(manifest, folder, expected_weight_fields(config, manifest.model), expected_weights(model.model()),
              ExtraTensors::kIgnore);
  reader.read(weight_targets(model));
  for (int u = 0; u < model.num_units(); ++u) model.unit(u).mark_written(compute);
  return manifest;
}

}  // namespace tessera
