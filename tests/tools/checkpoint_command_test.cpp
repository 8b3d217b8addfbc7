#include "tools/checkpoint_command.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/folders.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

class CheckpointCommand : public testing::Test {
 protected:
  struct Result {
    int exit_code = 0;
    std::string out;
    nlohmann::json json() const { return nlohmann::json::parse(out); }
  };
  static Result run(std::vector<std::string> arguments) {
    CLI::App app;
    Result result;
    add_checkpoint_commands(app, result.exit_code);
    arguments.insert(arguments.begin(), "checkpoint");
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes the last argument first
    testing::internal::CaptureStdout();
    try {
      app.parse(arguments);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    result.out = testing::internal::GetCapturedStdout();
    return result;
  }
  // RUN/checkpoints of a run, saved by so many ranks.
  SavedCheckpoint save(const std::string& run_name, int num_ranks, std::int64_t step) {
    const std::string run_directory = directory_ / run_name;
    if (!files_->exists(run_directory)) files_->make_directory(run_directory);
    return test::save_layout(*files_, run_directory + "/checkpoints", model_, "block", num_ranks, 1, step);
  }
  static void flip_bit(const std::string& path, std::size_t byte) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(byte));
    const char value = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(byte));
    file.put(value);
  }

  test::TemporaryDirectory directory_;
  const ModelSpec model_ = test::tiny_model(1, 67, 12);
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
  const std::string a_ = directory_ / "a", b_ = directory_ / "b";
};

TEST_F(CheckpointCommand, ListsStepsWithWhatIsWrong) {
  const SavedCheckpoint good = save("a", 2, 10);
  const SavedCheckpoint bad = save("a", 1, 20);
  files_->remove(bad.folder + "/manifest.json");
  files_->make_directory(a_ + "/checkpoints/" + saving_folder_name(30, 1));
  const Result text = run({"list", a_});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find(hex64(good.root_hash) + "  complete\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(bad.folder + "/manifest.json: cannot open: No such file or directory\n"), std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find(".saving-00000030-0000000000000001: the save of step 30 did not end\n"), std::string::npos);
  const auto json = run({"list", a_ + "/checkpoints", "--json"}).json();
  EXPECT_EQ(json["checkpoints"][0]["step"], 10);
  EXPECT_EQ(json["checkpoints"][0]["complete"], true);
  EXPECT_EQ(json["checkpoints"][0]["bytes"], good.bytes);
  EXPECT_EQ(json["checkpoints"][0]["shards"], 2);
  EXPECT_EQ(json["checkpoints"][1]["complete"], false);
  EXPECT_EQ(json["unfinished"].size(), 1U);
  EXPECT_THROW(run({"list", directory_ / "none"}), CheckpointError);
}

TEST_F(CheckpointCommand, ShowsTheNewestCompleteOfARun) {
  save("a", 2, 10);
  const SavedCheckpoint newest = save("a", 2, 20);
  const Result text = run({"show", a_, "--tensors"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_TRUE(text.out.starts_with("checkpoint    " + newest.folder + "\n")) << text.out;
  EXPECT_NE(text.out.find("root hash     " + hex64(newest.root_hash) + "\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("  embedding.token.weight    F32 [67, 12], 2 slices\n"), std::string::npos) << text.out;
  EXPECT_EQ(run({"show", a_, "--json"}).json()["step"], 20);
  files_->remove(newest.folder + "/manifest.json");
  EXPECT_EQ(run({"show", a_, "--json"}).json()["step"], 10);
  EXPECT_THROW(run({"show", newest.folder}), CheckpointError);
  EXPECT_THROW(run({"show", directory_ / "none"}), CheckpointError);
}

TEST_F(CheckpointCommand, VerifyNamesTheDamagedFileAndBlockAndExitsWith5) {
  const SavedCheckpoint saved = save("a", 2, 10);
  const Result good = run({"verify", a_});
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_TRUE(good.out.starts_with("ok: " + saved.folder + ": 2 shards, ")) << good.out;
  const std::string shard = saved.folder + "/shard-00001-of-00002.safetensors";
  flip_bit(shard, 2000);
  const Result bad = run({"verify", saved.folder});
  EXPECT_EQ(bad.exit_code, 5);
  EXPECT_TRUE(bad.out.starts_with(shard + ": damaged in block 0 of 1 (from byte 0 on): its hash is ")) << bad.out;
  const auto json = run({"verify", a_, "--json"}).json();
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["damage"].size(), 1U);
  EXPECT_EQ(json["root_hash"], nullptr);
}

TEST_F(CheckpointCommand, DiffSaysAtOnceThatLayoutsOfOneStateAreEqual) {
  save("a", 1, 10);
  save("b", 3, 10);
  const Result result = run({"diff", a_, b_});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "equal: the same root hash\n");
}

TEST_F(CheckpointCommand, DiffNamesEveryTensorThatDiffersAndExitsWith5) {
  save("a", 1, 10);
  save("b", 3, 11);
  const Result result = run({"diff", a_, b_});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_NE(result.out.find("block.0.gain              12 elements differ, by at most "), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find(", the first is 0\n"), std::string::npos);
  const auto json = run({"diff", a_, b_, "--json"}).json();
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["tensors"].size(), 12U) << "four parameters, each with two moments";
  EXPECT_EQ(json["tensors"][0]["tensor"], "block.0.gain");
  EXPECT_EQ(json["tensors"][0]["elements"], 12);
}

// A Hugging Face folder, a run, a folder again; and logits of both.
TEST_F(CheckpointCommand, ImportsAndExportsAndNeverWritesOver) {
  const std::string source = std::string(TESSERA_SOURCE_DIR) + "/tests/data/huggingface/gpt2";
  const std::string hf = directory_ / "hf";
  const Result imported = run({"import", source, a_});
  EXPECT_EQ(imported.exit_code, 0);
  EXPECT_TRUE(imported.out.starts_with("imported " + source + ": gpt2, ")) << imported.out;
  EXPECT_NE(imported.out.find("note: attn_pdrop 0.1: Tessera trains without dropout\n"), std::string::npos);
  EXPECT_EQ(run({"verify", a_}).exit_code, 0);
  EXPECT_NE(run({"show", a_}).out.find("weights alone"), std::string::npos);
  EXPECT_THROW(run({"import", source, a_}), CheckpointError) << "it is there";

  const Result exported = run({"export", a_, hf, "--max-shard-size", "1MB"});
  EXPECT_EQ(exported.exit_code, 0);
  EXPECT_TRUE(exported.out.starts_with("exported " + a_ + "/checkpoints/step-00000000: gpt2, ")) << exported.out;
  EXPECT_THROW(run({"export", a_, hf}), CheckpointError) << "it is there";
  run({"import", hf, b_});
  EXPECT_EQ(run({"diff", a_, b_}).out, "equal: the same root hash\n");

  const auto logits = run({"logits", b_, "--tokens", "5,0,60"}).json();
  EXPECT_EQ(logits.size(), 3U);
  EXPECT_EQ(logits[2].size(), 61U);
  EXPECT_EQ(logits, run({"logits", a_, "--tokens", "5,0,60"}).json());
  EXPECT_THROW(run({"logits", a_, "--tokens", "61"}), ConfigError);
}

}  // namespace
}  // namespace tessera
