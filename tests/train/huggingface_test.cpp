// Models of others: the logits that transformers computes, there and back again, and training that begins with their weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/catalog.h"
#include "checkpoint/huggingface_files.h"
#include "checkpoint/new_folder.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/train/huggingface_export.h"
#include "runtime/train/huggingface_import.h"
#include "runtime/train/load_weights.h"
#include "runtime/train/logits.h"
#include "runtime/train/tokenizer.h"
#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/safetensors_file.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string reference(const std::string& name) {
  return std::string(TESSERA_SOURCE_DIR) + "/tests/data/huggingface/" + name;
}

// What transformers says (tools/make_huggingface_reference.py).
struct Expected {
  std::vector<std::int32_t> tokens;
  std::vector<float> logits;
};
Expected expected_of(const std::string& name) {
  Expected expected{.tokens = json::parse(std::ifstream(reference(name) + "/logits.json")).at("tokens")};
  const std::string bytes = test::read_text(reference(name) + "/logits.f32");
  expected.logits.resize(bytes.size() / sizeof(float));
  std::memcpy(expected.logits.data(), bytes.data(), bytes.size());
  return expected;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

class HuggingFace : public ::testing::Test {
 protected:
  ImportedModel import(const std::string& folder, const std::string& run) {
    NewFolder target(*files_, run);
    ImportedModel imported = import_huggingface(*files_, folder, target.temporary(), run);
    target.commit();
    return imported;
  }
  ExportedModel export_to(const std::string& checkpoint, const std::string& folder,
                          std::uint64_t max_shard_bytes = kDefaultMaxShardBytes) {
    NewFolder target(*files_, folder);
    ExportedModel exported = export_huggingface(*files_, checkpoint, target.temporary(), max_shard_bytes);
    target.commit();
    return exported;
  }
  // A copy of a reference model, to be changed.
  std::string copy_of(const std::string& name) {
    std::string folder = directory_ / (name + std::to_string(++copies_));
    fs::copy(reference(name), folder);
    return folder;
  }
  void change_config(const std::string& folder, const json& change) {
    json config = json::parse(std::ifstream(folder + "/config.json"));
    config.update(change);
    test::write_text(folder + "/config.json", config.dump());
  }
  std::vector<float> logits(const std::string& run, const std::vector<std::int32_t>& tokens) {
    return checkpoint_logits(*files_, resolve_checkpoint(*files_, run), tokens);
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  const std::string run_ = directory_ / "runs/imported", again_ = directory_ / "runs/again",
                    exported_ = directory_ / "exported";
  int copies_ = 0;
};

class HuggingFaceReference : public HuggingFace, public ::testing::WithParamInterface<std::string> {};

TEST_P(HuggingFaceReference, LogitsAreThoseOfTransformers) {
  import(reference(GetParam()), run_);
  const Expected expected = expected_of(GetParam());
  EXPECT_LE(largest_difference(logits(run_, expected.tokens), expected.logits), 1e-5);
}

TEST_P(HuggingFaceReference, ThereAndBackAndThereIsTheSame) {
  const ImportedModel first = import(reference(GetParam()), run_);
  const ExportedModel exported = export_to(run_, exported_);
  EXPECT_EQ(exported.layout, first.layout);
  EXPECT_EQ(exported.weight_files, std::vector<std::string>{"model.safetensors"});
  const ImportedModel second = import(exported_, again_);
  EXPECT_EQ(hex64(second.root_hash), hex64(first.root_hash));
  EXPECT_EQ(read_manifest(*files_, resolve_checkpoint(*files_, again_)).model,
            read_manifest(*files_, resolve_checkpoint(*files_, run_)).model);
  const std::string last = directory_ / "last";
  export_to(again_, last);
  for (const char* file : {"model.safetensors", "config.json", "generation_config.json"})
    EXPECT_EQ(test::read_text(last + "/" + file), test::read_text(exported_ + "/" + file)) << file;
}

INSTANTIATE_TEST_SUITE_P(Transformers, HuggingFaceReference,
                         ::testing::Values("gpt2", "gpt2_untied", "llama", "llama3", "llama_linear"),
                         [](const auto& test) { return test.param; });

// Case G5: the attention's own projection is square, so that no shape tells.
TEST_F(HuggingFace, AFileThatIsTransposedGivesOtherLogits) {
  const std::string folder = copy_of("gpt2");
  test::RawTensors tensors = test::read_safetensors(folder + "/model.safetensors");
  const auto found = std::ranges::find_if(
      tensors, [](const auto& tensor) { return tensor.first.ends_with("h.1.attn.c_proj.weight"); });
  ASSERT_NE(found, tensors.end());
  ASSERT_EQ(found->second.shape, (Extents{24, 24}));
  std::vector<float> values = test::floats_of(found->second);
  for (std::size_t row = 0; row < 24; ++row)
    for (std::size_t column = 0; column < row; ++column)
      std::swap(values[row * 24 + column], values[column * 24 + row]);
  found->second = test::raw_tensor({24, 24}, values);
  test::write_safetensors(folder + "/model.safetensors", tensors);
  import(folder, run_);
  const Expected expected = expected_of("gpt2");
  EXPECT_GE(largest_difference(logits(run_, expected.tokens), expected.logits), 0.1);
}

// Case G4, of whole models.
TEST_F(HuggingFace, ATiedModelIsExportedWithItsMatrixOnceAndAnUntiedWithBoth) {
  import(reference("gpt2"), run_);
  export_to(run_, exported_);
  const test::RawTensors tied = test::read_safetensors(exported_ + "/model.safetensors");
  EXPECT_TRUE(tied.contains("transformer.wte.weight"));
  EXPECT_FALSE(tied.contains("lm_head.weight"));
  EXPECT_EQ(tied.size(), 28U) << "two tables, two blocks of twelve, two of the last norm";
  import(reference("gpt2_untied"), again_);
  export_to(again_, directory_ / "untied");
  const test::RawTensors untied = test::read_safetensors(directory_ / "untied/model.safetensors");
  ASSERT_TRUE(untied.contains("lm_head.weight"));
  EXPECT_NE(untied.at("lm_head.weight").bytes, untied.at("transformer.wte.weight").bytes);
}

TEST_F(HuggingFace, AnImportIsARunDirectoryWithAJobThatLoads) {
  const ImportedModel imported = import(reference("llama"), run_);
  EXPECT_EQ(imported.tokenizer_files, std::vector<std::string>{"generation_config.json"});
  EXPECT_EQ(fs::exists(run_ + "/tokenizer/generation_config.json"), true);
  const ConfigResult job = check_config(run_ + "/config.yaml");
  ASSERT_TRUE(job.problems.empty()) << job.problems[0].line_text();
  EXPECT_EQ(job.config.checkpoint.init_from, run_);
  EXPECT_EQ(job.config.model.num_kv_heads, 2);
  EXPECT_EQ(job.config.model.head_dim, 8);
  EXPECT_EQ(job.config.run.name, "imported-tuned");
  const Manifest manifest = read_manifest(*files_, run_ + "/checkpoints/step-00000000");
  EXPECT_TRUE(manifest.weights_only);
  EXPECT_EQ(manifest.find("block.0.attention.query.weight.m"), nullptr);
}

TEST_F(HuggingFace, TokenizerFilesTravelAlong) {
  const std::string folder = copy_of("gpt2");
  for (const char* name : {"tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "vocab.json"})
    test::write_text(folder + "/" + name, std::string("text of ") + name);
  test::write_text(folder + "/README.md", "not this");
  fs::remove(folder + "/generation_config.json");
  const ImportedModel imported = import(folder, run_);
  const std::vector<std::string> names = {"tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                                          "tokenizer.model", "generation_config.json"};
  EXPECT_EQ(imported.tokenizer_files, names);
  EXPECT_EQ(check_config(run_ + "/config.yaml").config.data.tokenizer, "");
  EXPECT_EQ(imported.notes.back(), "tokenizer.model is copied, but cannot be used: " + folder +
                                       "/tokenizer.model: is not a SentencePiece model");
  const ExportedModel exported = export_to(run_, exported_);
  EXPECT_EQ(exported.tokenizer_files, names);
  EXPECT_EQ(test::read_text(exported_ + "/vocab.json"), "text of vocab.json");
  EXPECT_EQ(json::parse(std::ifstream(exported_ + "/config.json")).at("eos_token_id"), 60)
      << "config.json alone named it";
  EXPECT_FALSE(fs::exists(exported_ + "/README.md"));
}

// Llama 2 comes with both: its tokenizer.json is of a kind that is not read, its tokenizer.model is.
TEST_F(HuggingFace, AJobNamesTheTokenizerThatLoads) {
  const std::string folder = copy_of("gpt2");
  constexpr std::int64_t kVocabulary = 400, kHidden = 24;
  test::RawTensors tensors = test::read_safetensors(folder + "/model.safetensors");
  tensors.at("transformer.wte.weight") =
      test::raw_tensor({kVocabulary, kHidden}, std::vector<float>(kVocabulary * kHidden, 0.5F));
  test::write_safetensors(folder + "/model.safetensors", tensors);
  change_config(folder, {{"vocab_size", kVocabulary}});
  std::string text;
  for (int line = 0; line < 200; ++line) text += "the model reads the weights of the other model\n";
  test::write_text(directory_ / "text.txt", text);
  train_sentencepiece_bpe({directory_ / "text.txt"}, 290, folder + "/tokenizer.model");
  test::write_text(folder + "/tokenizer.json", R"({"model": {"type": "WordPiece"}})");
  const ImportedModel imported = import(folder, run_);
  EXPECT_EQ(imported.tokenizer, "tokenizer.model");
  EXPECT_EQ(imported.notes.back(), "tokenizer.json is copied, but cannot be used: " + folder +
                                       "/tokenizer.json: model.type: found \"WordPiece\", expected \"BPE\"");
  EXPECT_EQ(check_config(run_ + "/config.yaml").config.data.tokenizer, run_ + "/tokenizer/tokenizer.model");
}

TEST_F(HuggingFace, AnExportIsCutIntoShardsOnRequest) {
  import(reference("llama"), run_);
  const ExportedModel exported = export_to(run_, exported_, 20000);
  EXPECT_GE(exported.weight_files.size(), 3U);
  for (const std::string& file : exported.weight_files)
    EXPECT_LE(fs::file_size(exported_ + "/" + file), 23000U) << file;
  EXPECT_EQ(import(exported_, again_).root_hash, read_manifest(*files_, run_ + "/checkpoints/step-00000000").root_hash);
}

TEST_F(HuggingFace, NothingIsLeftOfAnImportOrAnExportThatFails) {
  const std::string folder = copy_of("gpt2");
  change_config(folder, {{"scale_attn_by_inverse_layer_idx", true}});
  EXPECT_THROW(import(folder, run_), CheckpointError);
  EXPECT_FALSE(fs::exists(run_));
  EXPECT_TRUE(fs::is_empty(directory_ / "runs"));

  // Each call in turn fails; each in turn is where the process ends.
  import(reference("gpt2"), run_);
  for (const test::FaultKind kind : {test::FaultKind::kFail, test::FaultKind::kTornKill}) {
    for (const bool imports : {true, false}) {
      bool done = false;
      for (std::int64_t call = 1; !done; ++call) {
        test::FaultyFileSystem faulty;
        faulty.plan(call, kind);
        const std::string path = directory_ / fmt::format("target-{}-{}-{}", static_cast<int>(kind), imports, call);
        try {
          NewFolder target(faulty, path);
          if (imports)
            import_huggingface(faulty, reference("gpt2"), target.temporary(), path);
          else
            export_huggingface(faulty, run_, target.temporary(), kDefaultMaxShardBytes);
          target.commit();
          done = true;
        } catch (const std::exception&) {
        }
        if (!fs::exists(path)) {
          EXPECT_FALSE(done);
          continue;
        }
        // What has the name is whole.
        if (imports) {
          EXPECT_EQ(read_manifest(*files_, path + "/checkpoints/step-00000000").root_hash,
                    read_manifest(*files_, run_ + "/checkpoints/step-00000000").root_hash);
        } else {
          import(path, path + "-again");
        }
      }
    }
  }
}

// A run of the Llama family or GPT-2, saved by ranks of its own, exported.
TEST_F(HuggingFace, ACheckpointOfAnyLayoutIsExportedAlike) {
  std::vector<std::string> exports;
  for (const int world : {1, 4}) {
    JobConfig config = test::llama_t(3);
    config.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, config.model.vocab_size), 1.0}};
    config.checkpoint.every = 3;
    config.fsdp.wrap = world == 1 ? "block" : "root";
    const std::string run = directory_ / fmt::format("run{}", world);
    test::run_job(config, world, 1, run);
    exports.push_back(directory_ / fmt::format("export{}", world));
    EXPECT_EQ(export_to(run, exports.back()).step, 3);
  }
  EXPECT_EQ(test::read_text(exports[0] + "/model.safetensors"), test::read_text(exports[1] + "/model.safetensors"));
  EXPECT_EQ(test::read_text(exports[0] + "/config.json"), test::read_text(exports[1] + "/config.json"));
}

TEST_F(HuggingFace, AModelThatNoLayoutExpressesIsNotExported) {
  JobConfig config = test::model_t(1);
  config.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, config.model.vocab_size), 1.0}};
  config.checkpoint.every = 1;
  config.model.positions = "rope";
  test::run_job(config, 1, 1, directory_ / "run");
  try {
    export_to(directory_ / "run", exported_);
    FAIL() << "exported";
  } catch (const CheckpointError& error) {
    EXPECT_STREQ(
        error.what(),
        "neither Hugging Face layout can express this model: model.positions: rope, which gpt2 has as learned");
  }
  EXPECT_FALSE(fs::exists(exported_));
}

class InitFrom : public HuggingFace {
 protected:
  // A job on the imported model.
  JobConfig job(const std::string& source) {
    JobConfig config = check_config(run_ + "/config.yaml").config;
    config.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, config.model.vocab_size), 1.0}};
    config.run.steps = 3;
    config.run.hash_every = 1;
    config.optimizer.learning_rate = 1e-3;
    config.reproducibility.lanes = 4;
    config.checkpoint.init_from = source;
    return config;
  }
  std::string fresh() { return directory_ / fmt::format("fresh{}", ++runs_); }
  // The events of a run's start and steps.
  std::vector<std::string> numbers(const JobConfig& config, int world) {
    return test::promised_numbers(test::run_job(config, world, 1, fresh()));
  }
  std::string refusal(const JobConfig& config, int world, const std::string& run) {
    const std::vector<std::string> errors = test::run_to_errors(config, world, run);
    for (const std::string& error : errors) EXPECT_EQ(error, errors.front());
    return errors.front();
  }

  int runs_ = 0;
};

TEST_F(InitFrom, AnImportAStepOrTheFolderItselfOnAnyRanksGiveTheSameBits) {
  for (const char* name : {"gpt2", "llama3"}) {
    fs::remove_all(run_);
    import(reference(name), run_);
    const std::vector<std::string> expected = numbers(job(run_), 1);
    ASSERT_EQ(expected.size(), 4U);
    EXPECT_NE(numbers(job(""), 1).back(), expected.back()) << "from random weights";
    for (const std::string& source : {run_, run_ + "/checkpoints/step-00000000", reference(name)}) {
      for (const int world : {2, 4}) {
        JobConfig config = job(source);
        config.fsdp.strategy = world == 4 ? "full_shard" : "no_shard";
        config.fsdp.wrap = world == 4 ? "root" : "block";
        EXPECT_EQ(numbers(config, world), expected) << source << " on " << world << " ranks";
      }
    }
  }
}

TEST_F(InitFrom, TakesTheWeightsOfARunAndNothingElse) {
  import(reference("llama"), run_);
  JobConfig config = job(run_);
  config.checkpoint.every = 3;
  const std::string trained = fresh();
  test::run_job(config, 2, 1, trained);
  JobConfig next = job(trained);
  next.checkpoint.every = 1;
  next.run.steps = 1;
  next.optimizer.learning_rate = 0;
  next.model.seq_len = 16;  // rotary positions have no length of their own
  const std::string tuned = fresh();
  test::run_job(next, 4, 1, tuned);
  const Manifest before = read_manifest(*files_, resolve_checkpoint(*files_, trained));
  const Manifest after = read_manifest(*files_, resolve_checkpoint(*files_, tuned));
  EXPECT_EQ(after.step, 1) << "a run of its own";
  for (const char* name : {"embedding.token.weight", "block.1.feed_forward.down.weight", "head.weight"}) {
    EXPECT_EQ(after.find(name)->block_digests, before.find(name)->block_digests) << name;
    EXPECT_NE(after.find(std::string(name) + ".m")->block_digests,
              before.find(std::string(name) + ".m")->block_digests);
  }
}

TEST_F(InitFrom, IsIgnoredAndSaidSoWhereARunResumes) {
  import(reference("gpt2"), run_);
  JobConfig config = job(run_);
  config.checkpoint.every = 1;
  const std::string run = fresh();
  test::run_job(config, 1, 1, run);
  fs::remove_all(run_);  // nothing is left that it could take
  config.run.steps = 5;
  test::run_job(config, 1, 1, run);
  EXPECT_NE(test::read_text(run + "/logs/rank-00000.log")
                .find("note: checkpoint.init_from " + run_ + " is ignored, the run has weights of its own"),
            std::string::npos);
}

TEST_F(InitFrom, RefusesWeightsOfAnotherModelFieldByField) {
  import(reference("gpt2"), run_);
  for (const std::string& source : {run_, reference("gpt2")}) {
    JobConfig config = job(source);
    config.model.activation = "relu";
    config.model.norm_eps = 1e-3;
    const std::string error = refusal(config, 2, fresh());
    EXPECT_TRUE(error.starts_with("5 ")) << error;
    EXPECT_NE(error.find("another model: norm_eps: 1e-05 saved, 0.001 now; activation: gelu_tanh saved, relu now"),
              std::string::npos)
        << error;
  }
  JobConfig config = job(directory_ / "none");
  EXPECT_EQ(refusal(config, 2, fresh()),
            "5 checkpoint.init_from: " + std::string(directory_ / "none") +
                ": there is nothing; hint: a run, a checkpoint, or the folder of a Hugging Face model");
}

TEST_F(InitFrom, WeightsAloneAreNoRunToGoOnWith) {
  import(reference("gpt2"), run_);
  JobConfig config = job("");
  const std::string expected = "5 " + run_ +
                               "/checkpoints/step-00000000: holds weights alone, which no run can go on from; hint: "
                               "checkpoint.init_from: " +
                               run_ + ", in a run directory of its own";
  EXPECT_EQ(refusal(config, 2, run_),
            "2 run directory " + run_ + ": holds an import, which stays as it is; hint: checkpoint.init_from: " + run_ +
                ", and another --run-dir");
  config.checkpoint.resume = run_;
  EXPECT_EQ(refusal(config, 2, fresh()), expected) << "--resume";
  EXPECT_TRUE(read_manifest(*files_, run_ + "/checkpoints/step-00000000").weights_only) << "nothing was changed";
}

}  // namespace
}  // namespace tessera
