// The table is whole, and what is read off it agrees with the loader.
#include "runtime/config/key_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/error.h"
#include "runtime/config/suggest.h"
#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

using config::FieldRef;
using config::key_rows;
using config::KeyRow;

TEST(KeyTable, HasEveryKeyOfTheDesignOnce) {
  const std::vector<std::string> keys = all_keys();
  const std::set<std::string> unique(keys.begin(), keys.end());
  EXPECT_EQ(unique.size(), keys.size());
  for (const char* key :
       {"run.on_nonfinite", "mesh.placement", "model.rope_scaling", "data.document_separator", "batch.micro_batch_size",
        "precision.loss_scale", "fsdp.shard_size", "pipeline.virtual_stages", "recompute", "optimizer.groups",
        "schedule.step_size", "loss.z_loss", "checkpoint.init_from", "collectives.program_check",
        "reproducibility.tp_splits", "device.memory_limit", "trace.steps", "chaos"}) {
    EXPECT_EQ(unique.count(key), 1u) << key;
  }
}

TEST(KeyTable, RowsAreComplete) {
  for (const KeyRow& row : key_rows()) {
    EXPECT_TRUE(row.meaning.ends_with('.')) << row.path;
    EXPECT_TRUE(row.is_item() || row.section().empty() || config::is_section(row.section())) << row.path;
    EXPECT_EQ(row.later, std::holds_alternative<std::monostate>(row.field)) << row.path;
    for (const std::string_view word : row.words_now) {
      EXPECT_NE(std::find(row.words.begin(), row.words.end(), word), row.words.end()) << row.path;
    }
  }
}

TEST(KeyTable, DefaultsAreValuesThatTheLoaderAccepts) {
  for (const KeyRow& row : key_rows()) {
    if (row.later || !row.unset.empty()) continue;
    const std::string value = row.default_text();
    if (row.applies != nullptr || row.is_item()) continue;
    EXPECT_EQ(problems_of(kModelT, {std::string(row.path) + "=" + value}), Lines{}) << row.path;
  }
}

TEST(KeyTable, NamesOfOthersLeadToTheirRowAndAreNotOurs) {
  std::set<std::string_view> seen;
  for (const KeyRow& row : key_rows()) {
    for (const config::ForeignName& foreign : row.foreign) {
      EXPECT_TRUE(seen.insert(foreign.name).second) << foreign.name << " stands for two keys";
      EXPECT_EQ(config::hint_for_key("nowhere", foreign.name).path, row.path) << foreign.name;
    }
  }
}

TEST(Explain, SaysWhatOneKeyIs) {
  EXPECT_EQ(explain_key("optimizer.learning_rate"),
            "optimizer.learning_rate\n"
            "  The rate at the end of warm-up; schedule.* says how it moves.\n"
            "  value     a number of at least 0 and at most 1000000\n"
            "  default   0.001\n"
            "  elsewhere lr (Megatron, torchtitan)\n");
  EXPECT_EQ(explain_key("fsdp.wrap"),
            "fsdp.wrap\n"
            "  What is gathered together: each block, so many blocks, or the whole model at once (root).\n"
            "  value     block, root or an integer from 1 to 10000\n"
            "  default   block\n"
            "  unit      blocks\n"
            "  elsewhere fsdp_auto_wrap_policy (Hugging Face), auto_wrap_policy (PyTorch), "
            "fsdp_transformer_layer_cls_to_wrap (Hugging Face)\n");
  EXPECT_EQ(explain_key("checkpoint.keep_every"),
            "checkpoint.keep_every\n"
            "  Keeps the checkpoints of the steps that this divides for good; 0 is none.\n"
            "  value     an integer from 0 to 1000000000000\n"
            "  default   0\n"
            "  unit      updates\n");
}

TEST(Explain, AnswersForEveryKeyAndSectionAndForNamesOfOthers) {
  for (const std::string& key : all_keys()) EXPECT_EQ(explain_key(key).rfind(key + "\n", 0), 0u);
  for (const config::Section& section : config::sections())
    EXPECT_NE(explain_key(section.name).find(section.meaning), std::string::npos);
  EXPECT_EQ(explain_key("n_embd"), explain_key("model.hidden_size"));
  EXPECT_EQ(explain_key("weight_decay"), explain_key("optimizer.weight_decay"));
  EXPECT_NE(explain_key("").find("optimizer"), std::string::npos);
}

TEST(Explain, RefusesAnUnknownKeyWithAHint) {
  try {
    explain_key("optimizer.weigth_decay");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.line(), "optimizer.weigth_decay: unknown key; hint: weight_decay");
  }
}

TEST(Schema, DescribesEveryKeyAndClosesEverySection) {
  const auto schema = nlohmann::json::parse(json_schema());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["required"], (std::vector<std::string>{"model", "data", "batch", "run"}));
  for (const KeyRow& row : key_rows()) {
    if (row.is_item()) continue;
    const auto& place =
        row.section().empty() ? schema["properties"] : schema["properties"][std::string(row.section())]["properties"];
    ASSERT_TRUE(place.contains(std::string(row.name()))) << row.path;
    EXPECT_NE(place[std::string(row.name())]["description"].get<std::string>().find(row.meaning), std::string::npos);
  }
  for (const config::Section& section : config::sections()) {
    EXPECT_EQ(schema["properties"][std::string(section.name)]["additionalProperties"], false);
  }
  EXPECT_EQ(schema["properties"]["model"]["required"],
            (std::vector<std::string>{"num_layers", "num_heads", "hidden_size", "seq_len", "vocab_size"}));
  EXPECT_EQ(schema["properties"]["optimizer"]["properties"]["name"]["enum"], std::vector<std::string>{"adamw"});
}

}  // namespace
}  // namespace tessera::testing
