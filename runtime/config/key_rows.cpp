#include "runtime/config/key_rows.h"

namespace tessera::config {
namespace {

std::vector<KeyRow> all_rows() {
  std::vector<KeyRow> rows;
  for (auto* part : {run_rows, mesh_rows, model_rows, data_rows, batch_rows, precision_rows, fsdp_rows, pipeline_rows,
                     optimizer_rows, schedule_rows, loss_rows, checkpoint_rows, system_rows}) {
    for (KeyRow& row : part()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> list = {
      {"run",
       "How long the run lasts and what it reports.",
       {{"training", "torchtitan"}, {"metrics", "torchtitan"}, {"validation", "torchtitan"}}},
      {"mesh", "How ranks divide the work.", {{"parallelism", "torchtitan"}}},
      {"model", "The transformer.", {}},
      {"data", "What it reads.", {}},
      {"batch", "Sequences per step.", {}},
      {"precision", "Element types.", {}},
      {"fsdp", "How parameters are sharded.", {{"fsdp_config", "Hugging Face"}, {"zero_optimization", "DeepSpeed"}}},
      {"pipeline", "How pipeline stages run.", {}},
      {"optimizer", "The update.", {}},
      {"schedule", "How the learning rate moves.", {{"lr_scheduler", "torchtitan"}, {"scheduler", "DeepSpeed"}}},
      {"loss", "What is minimised.", {}},
      {"checkpoint", "What is saved, when.", {}},
      {"collectives", "How ranks talk.", {{"comm", "torchtitan"}}},
      {"reproducibility", "What fixes the bits.", {}},
      {"device", "What a rank computes on.", {}},
      {"trace", "What is traced.", {{"profiling", "torchtitan"}}},
  };
  return list;
}

const std::vector<KeyRow>& key_rows() {
  static const std::vector<KeyRow> rows = all_rows();
  return rows;
}

}  // namespace tessera::config
