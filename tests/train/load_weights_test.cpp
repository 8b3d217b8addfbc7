// Weights without the run that made them.
#include "runtime/train/load_weights.h"

#include <gtest/gtest.h>

#include "checkpoint/catalog.h"
#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/train/train_job.h"

namespace tessera {
namespace {

class LoadWeights : public ::testing::Test {
 protected:
  // A run of two steps on two ranks, saved.
  std::string train(JobConfig config) {
    config.data.train = {{test::write_tokens(directory_ / "train.bin", 4001, config.model.vocab_size), 1.0}};
    config.checkpoint.every = 2;
    test::run_job(config, 2, 1, directory_ / "run");
    return resolve_checkpoint(*files_, directory_ / "run");
  }
  std::string refusal(const JobConfig& config, const std::string& folder) {
    std::string message;
    test::run_ranks(config, 1, [&](test::RankParts& rank) {
      try {
        load_weights(*files_, folder, config.model, rank.model, rank.streams.compute);
      } catch (const CheckpointError& error) {
        message = error.line();
      }
    });
    return message;
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

TEST_F(LoadWeights, OfAnyLayoutIntoAnyOther) {
  JobConfig config = test::model_t(2);
  const std::string folder = train(config);
  std::vector<float> whole;
  test::run_ranks(config, 1, [&](test::RankParts& rank) {
    const Manifest manifest = load_weights(*files_, folder, config.model, rank.model, rank.streams.compute);
    EXPECT_EQ(manifest.step, 2);
    whole = rank.gather("block.1.attention.query.weight");
  });
  test::run_ranks(config, 4, [&](test::RankParts& rank) {
    EXPECT_NE(rank.gather("block.1.attention.query.weight"), whole) << "initial values";
    load_weights(*files_, folder, config.model, rank.model, rank.streams.compute);
    EXPECT_EQ(rank.gather("block.1.attention.query.weight"), whole) << "of rank " << rank.rank;
  });
}

TEST_F(LoadWeights, NamesEveryFieldAndTensorThatDiffers) {
  JobConfig config = test::model_t(2);
  const std::string folder = train(config);
  config.model.activation = "relu";
  config.model.seq_len = 8;
  EXPECT_EQ(refusal(config, folder),
            folder +
                ": another model: seq_len: 16 saved, 8 now; activation: gelu_tanh saved, relu now; "
                "embedding.position.weight: [16, 32] saved, [8, 32] now; hint: the job's model section has to be "
                "the saved one (tessera checkpoint show)");
}

TEST_F(LoadWeights, RotaryPositionsHaveNoLengthOfTheirOwn) {
  JobConfig config = test::llama_t(2);
  const std::string folder = train(config);
  config.model.seq_len = 8;
  EXPECT_EQ(refusal(config, folder), "");
  config.model.rope_theta = 500;
  EXPECT_NE(refusal(config, folder).find("rope_theta: 10000 saved, 500 now"), std::string::npos);
}

}  // namespace
}  // namespace tessera
