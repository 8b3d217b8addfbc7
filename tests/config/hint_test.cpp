// Case A7: unknown keys are refused with the name that was meant.
#include <gtest/gtest.h>

#include "runtime/config/key_table.h"
#include "runtime/config/suggest.h"
#include "tests/config/job_text.h"

namespace tessera::testing {
namespace {

using config::hint_for_key;

std::string problem_of_key(std::string_view section, std::string_view key) {
  // A section of its own at the end is a duplicate for those that model T has, so the key goes into the existing one
  // there.
  const std::string head = std::string(section) + ":\n";
  const std::string line = "  " + std::string(key) + ": 1\n";
  const bool has = std::string(kModelT).find("\n" + head) != std::string::npos || kModelT.starts_with(head);
  const Lines lines = problems_of(has ? model_t_with(head, head + line) : model_t_and(head + line));
  return lines.size() == 1 ? lines[0].substr(lines[0].find(' ') + 1) : "problems: " + std::to_string(lines.size());
}

TEST(Hints, NameTheNearestKeyForOneTypoInEachSection) {
  EXPECT_EQ(problem_of_key("run", "seeed"), "run.seeed: unknown key; hint: seed");
  EXPECT_EQ(problem_of_key("mesh", "topolgy"), "mesh.topolgy: unknown key; hint: topology");
  EXPECT_EQ(problem_of_key("model", "num_kv_head"), "model.num_kv_head: unknown key; hint: num_kv_heads");
  EXPECT_EQ(problem_of_key("data", "shufle"), "data.shufle: unknown key; hint: shuffle");
  EXPECT_EQ(problem_of_key("batch", "golbal_batch_size"),
            "batch.golbal_batch_size: unknown key; hint: global_batch_size");
  EXPECT_EQ(problem_of_key("precision", "compte"), "precision.compte: unknown key; hint: compute");
  EXPECT_EQ(problem_of_key("fsdp", "stratgey"), "fsdp.stratgey: unknown key; hint: strategy");
  EXPECT_EQ(problem_of_key("pipeline", "shedule"), "pipeline.shedule: unknown key; hint: schedule");
  EXPECT_EQ(problem_of_key("optimizer", "weigth_decay"), "optimizer.weigth_decay: unknown key; hint: weight_decay");
  EXPECT_EQ(problem_of_key("schedule", "warmup_step"), "schedule.warmup_step: unknown key; hint: warmup_steps");
  EXPECT_EQ(problem_of_key("loss", "ingore_index"), "loss.ingore_index: unknown key; hint: ignore_index");
  EXPECT_EQ(problem_of_key("checkpoint", "evry"), "checkpoint.evry: unknown key; hint: every");
  EXPECT_EQ(problem_of_key("collectives", "timeout_second"),
            "collectives.timeout_second: unknown key; hint: timeout_seconds");
  EXPECT_EQ(problem_of_key("reproducibility", "tp_split"), "reproducibility.tp_split: unknown key; hint: tp_splits");
  EXPECT_EQ(problem_of_key("device", "thread"), "device.thread: unknown key; hint: threads");
  EXPECT_EQ(problem_of_key("trace", "step"), "trace.step: unknown key; hint: steps");
  EXPECT_EQ(problem_of_key("optimzer", "eps"), "optimzer: unknown key; hint: optimizer");
  EXPECT_EQ(problems_of(model_t_and("recomptue: none\n")),
            Lines{"job.yaml:18: recomptue: unknown key; hint: recompute"});
  EXPECT_EQ(problems_of(model_t_and("choas: []\n")), Lines{"job.yaml:18: choas: unknown key; hint: chaos"});
  EXPECT_EQ(problems_of(model_t_with("[data/t.bin]", "[{path: a, wieght: 2}]")),
            Lines{"job.yaml:10: data.train[0].wieght: unknown key; hint: weight"});
  EXPECT_EQ(problems_of(model_t_with("learning_rate: 1e-3", "groups: [{match: a, weight_deacy: 2}]")),
            Lines{"job.yaml:15: optimizer.groups[0].weight_deacy: unknown key; hint: weight_decay"});
}

TEST(Hints, NameTheSectionOfAKeyThatStandsInAnother) {
  EXPECT_EQ(problem_of_key("run", "learning_rate"), "run.learning_rate: unknown key; hint: optimizer.learning_rate");
  EXPECT_EQ(problem_of_key("model", "micro_batch_size"),
            "model.micro_batch_size: unknown key; hint: batch.micro_batch_size");
  EXPECT_EQ(problem_of_key("optimizer", "warmup_steps"),
            "optimizer.warmup_steps: unknown key; hint: schedule.warmup_steps");
  EXPECT_EQ(problem_of_key("fsdp", "tp"), "fsdp.tp: unknown key; hint: mesh.tp");
  EXPECT_EQ(problem_of_key("model", "name"),
            "model.name: unknown key; hint: run.name or optimizer.name or schedule.name");
  EXPECT_EQ(problem_of_key("fsdp", "recompute"), "fsdp.recompute: unknown key; hint: recompute");
  EXPECT_EQ(problem_of_key("run", "mesh"),
            "run.mesh: unknown key; hint: mesh is a section of its own, at the left margin");
  EXPECT_EQ(problems_of(model_t_and("seed: 3\n")), Lines{"job.yaml:18: seed: unknown key; hint: run.seed"});
  EXPECT_EQ(problems_of(model_t_and("mesh.tp: 1\n")),
            Lines{"job.yaml:18: mesh.tp: unknown key; hint: mesh: { tp: … }"});
}

TEST(Hints, KnowTheNamesOfOtherFrameworks) {
  const auto path = [](std::string_view key) { return hint_for_key("model", key).path; };
  EXPECT_EQ(path("n_embd"), "model.hidden_size");
  EXPECT_EQ(path("n_layer"), "model.num_layers");
  EXPECT_EQ(path("num_hidden_layers"), "model.num_layers");
  EXPECT_EQ(path("n_head"), "model.num_heads");
  EXPECT_EQ(path("num_attention_heads"), "model.num_heads");
  EXPECT_EQ(path("num_key_value_heads"), "model.num_kv_heads");
  EXPECT_EQ(path("ffn_hidden_size"), "model.intermediate_size");
  EXPECT_EQ(path("block_size"), "model.seq_len");
  EXPECT_EQ(path("seq_length"), "model.seq_len");
  EXPECT_EQ(path("max_position_embeddings"), "model.seq_len");
  EXPECT_EQ(path("lr"), "optimizer.learning_rate");
  EXPECT_EQ(path("learning_rate"), "optimizer.learning_rate");
  EXPECT_EQ(path("max_iters"), "run.steps");
  EXPECT_EQ(path("max_steps"), "run.steps");
  EXPECT_EQ(path("train_iters"), "run.steps");
  EXPECT_EQ(path("grad_clip"), "optimizer.clip_norm");
  EXPECT_EQ(path("max_grad_norm"), "optimizer.clip_norm");
  EXPECT_EQ(path("clip_grad"), "optimizer.clip_norm");
  EXPECT_EQ(path("tensor_parallel_degree"), "mesh.tp");
  EXPECT_EQ(path("tensor_model_parallel_size"), "mesh.tp");
  EXPECT_EQ(path("pipeline_model_parallel_size"), "mesh.pp");
  EXPECT_EQ(path("per_device_train_batch_size"), "batch.micro_batch_size");
  EXPECT_EQ(path("local_batch_size"), "batch.micro_batch_size");
  EXPECT_EQ(path("batch_size"), "batch.micro_batch_size");
  EXPECT_EQ(path("gradient_accumulation_steps"), "batch.global_batch_size");
  EXPECT_EQ(path("warmup_iters"), "schedule.warmup_steps");
  EXPECT_EQ(path("lr_decay_style"), "schedule.name");
  EXPECT_EQ(path("lr_scheduler_type"), "schedule.name");
  EXPECT_EQ(path("min_lr"), "schedule.min_learning_rate");
  EXPECT_EQ(path("beta1"), "optimizer.betas");
  EXPECT_EQ(path("adam_beta2"), "optimizer.betas");
  EXPECT_EQ(path("adam_eps"), "optimizer.eps");
  EXPECT_EQ(path("adam_epsilon"), "optimizer.eps");
  EXPECT_EQ(path("eval_interval"), "run.evaluate_every");
  EXPECT_EQ(path("dtype"), "precision.compute");
  EXPECT_EQ(path("limit_all_gathers"), "fsdp.max_inflight_all_gathers");
  EXPECT_EQ(path("gradient_checkpointing"), "recompute");
  EXPECT_EQ(path("--tensor-model-parallel-size"), "mesh.tp");
  EXPECT_EQ(problem_of_key("model", "n_embd"),
            "model.n_embd: unknown key; hint: model.hidden_size (n_embd in nanoGPT, Hugging Face)");
  EXPECT_EQ(problem_of_key("training", "x"), "training: unknown key; hint: run (training in torchtitan)");
}

TEST(Hints, SayNothingAboutAWordThatIsNearNoKey) {
  EXPECT_EQ(hint_for_key("model", "wombat").text, "");
  EXPECT_EQ(problem_of_key("model", "wombat"),
            "model.wombat: unknown key; hint: its keys are listed by `tessera config explain model`");
}

TEST(Hints, CountASwapOfNeighboursAsOneEdit) {
  EXPECT_EQ(config::edit_distance("weigth", "weight"), 1u);
  EXPECT_EQ(config::edit_distance("", "abc"), 3u);
  EXPECT_EQ(config::edit_distance("abc", "abc"), 0u);
  EXPECT_EQ(config::edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(config::edit_distance("ca", "abc"), 3u);  // the aligned form edits no substring twice
}

}  // namespace
}  // namespace tessera::testing
