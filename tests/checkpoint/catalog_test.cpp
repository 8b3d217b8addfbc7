#include "checkpoint/catalog.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

TEST(Catalog, TheRunOfACheckpointIsTwoFoldersUp) {
  EXPECT_EQ(run_of_checkpoint("runs/a/checkpoints/step-00000120"), "runs/a");
  EXPECT_EQ(run_of_checkpoint("runs/a/checkpoints/step-00000120/"), "runs/a");
  EXPECT_EQ(run_of_checkpoint("/x/checkpoints/step-00000120"), "/x");
  EXPECT_EQ(run_of_checkpoint("checkpoints/step-00000120"), ".");
  EXPECT_EQ(run_of_checkpoint("elsewhere/step-00000120"), "elsewhere/step-00000120");
}

class ResolveCheckpoint : public ::testing::Test {
 protected:
  std::string refusal(const std::string& name) {
    try {
      return resolve_checkpoint(*files_, directory_ / name);
    } catch (const CheckpointError& error) {
      return error.line();
    }
  }
  std::string path(const std::string& name) const { return directory_ / name; }

  test::TemporaryDirectory directory_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

TEST_F(ResolveCheckpoint, SaysWhatAPathCanBe) {
  const std::string hint = "; hint: a run directory, or the folder of a checkpoint";
  EXPECT_EQ(refusal("none"), path("none") + ": there is nothing" + hint);
  files_->make_directory(path("run"));
  EXPECT_EQ(refusal("run"), path("run") + ": no complete checkpoint" + hint);
  files_->make_directory(path("run/checkpoints"));
  files_->make_directory(path("run/checkpoints/.saving-00000003-0123456789abcdef"));
  EXPECT_EQ(refusal("run"), path("run") + ": no complete checkpoint; the save of step 3 did not end" + hint);
}

TEST_F(ResolveCheckpoint, KnowsAHuggingFaceFolderAsOne) {
  files_->make_directory(path("gpt2"));
  write_small_file(*files_, path("gpt2/config.json"), "{}");
  EXPECT_EQ(refusal("gpt2"),
            path("gpt2") +
                ": no complete checkpoint; hint: a Hugging Face model: tessera checkpoint import makes "
                "a run of it");
}

}  // namespace
}  // namespace tessera
