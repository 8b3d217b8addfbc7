#include "checkpoint/writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "runtime/base/error.h"
#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/checkpoint/thread_ranks.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::FaultyFileSystem;
using test::SyntheticState;

class Writer : public testing::Test {
 protected:
  Writer() { state_.fill(10); }
  SaveRequest request(std::int64_t step) const {
    return {.step = step,
            .slices = state_.sources(),
            .model = test::synthetic_model_fields(),
            .training = test::synthetic_training(step)};
  }
  Buffer staging() { return staging_.allocate(staging_bytes(state_.sources())); }
  std::int64_t num_wrong(const std::string& folder, std::int64_t step) {
    SyntheticState loaded(model_, "root", 1, 0);
    CheckpointReader::open(files_, folder).load(solo_, loaded.targets());
    return loaded.num_wrong(step);
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : files_.list(options_.directory)) names.push_back(entry.name);
    return names;
  }

  test::TemporaryDirectory directory_;
  const ModelSpec model_ = test::tiny_model(2, 67, 12);
  SyntheticState state_{model_, "block", 1, 0};
  test::Staging staging_;
  FaultyFileSystem files_;
  SoloExchange solo_;
  const CheckpointWriter::Options options_{.directory = directory_ / "checkpoints"};
};

TEST_F(Writer, SavesTheStateAsItWasWhenTheSaveBegan) {
  CheckpointWriter writer(files_, solo_, options_, staging());
  writer.begin(request(10));
  state_.clear();
  const SavedCheckpoint saved = writer.wait();
  EXPECT_EQ(saved.step, 10);
  EXPECT_EQ(saved.folder, options_.directory + "/step-00000010");
  EXPECT_EQ(num_wrong(saved.folder, 10), 0);
  EXPECT_FALSE(writer.in_flight());
}

TEST_F(Writer, HoldsOneCopyOfTheStateHoweverOftenItSaves) {
  std::int64_t elements = 0;
  for (const SourceSlice& slice : state_.sources()) elements += slice.count;
  const auto data_bytes = static_cast<std::size_t>(elements) * sizeof(float);
  const std::size_t bytes = staging_bytes(state_.sources());
  EXPECT_GT(bytes, data_bytes);
  EXPECT_LT(bytes, data_bytes + 4096) << "a header of some tens of tensors";
  CheckpointWriter writer(files_, solo_, options_, staging());
  const std::int64_t allocated = staging_.allocated();
  EXPECT_LE(allocated, static_cast<std::int64_t>(bytes) + 64);
  for (const std::int64_t step : {10, 20, 30}) {
    writer.begin(request(step));
    writer.wait();
    EXPECT_EQ(staging_.allocated(), allocated);
  }
}

TEST_F(Writer, SyncsEveryFileBeforeItsNameAndEveryNameBeforeTheNext) {
  CheckpointWriter writer(files_, solo_, options_, staging());
  writer.begin(request(10));
  writer.wait();
  std::vector<std::string> calls = files_.calls();
  for (std::string& call : calls)
    if (const auto nonce = call.find(".saving-"); nonce != std::string::npos) call.resize(nonce + 7);
  const std::string shard = "shard-00000-of-00001.safetensors", root = directory_.path().filename().string();
  EXPECT_EQ(calls,
            (std::vector<std::string>{"mkdir checkpoints", "sync " + root, "mkdir .saving", "create " + shard,
                                      "write " + shard, "sync " + shard, "close " + shard, "create manifest.json",
                                      "write manifest.json", "sync manifest.json", "close manifest.json",
                                      "sync .saving", "rename .saving", "sync checkpoints"}));
}

TEST_F(Writer, TheCertificateMayComeWhileTheShardsAreWritten) {
  CheckpointWriter writer(files_, solo_, options_, staging());
  writer.begin(request(10));
  const ResumeCertificate certificate{.batch_digest = 1, .learning_rate = 0.1, .rng_digest = 2, .loss = 3.5};
  writer.certify(certificate);
  EXPECT_FALSE(writer.advance());
  EXPECT_THROW(writer.certify(certificate), InternalError);
  const auto saved = writer.advance();
  ASSERT_TRUE(saved);
  EXPECT_EQ(read_manifest(files_, saved->folder).training.certificate, certificate);
}

TEST_F(Writer, AStepThatIsThereIsNeverWrittenOver) {
  CheckpointWriter writer(files_, solo_, options_, staging());
  writer.begin(request(10));
  writer.wait();
  state_.fill(11);
  try {
    writer.begin(request(10));
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.what(), options_.directory + "/step-00000010: is there already, and is never written over");
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000010"});
  EXPECT_EQ(num_wrong(options_.directory + "/step-00000010", 10), 0);
  state_.fill(20);
  writer.begin(request(20));  // the refusal has not harmed the writer
  writer.wait();
}

TEST_F(Writer, RetentionDeletesOnlyWhenTheNewCheckpointIsDurable) {
  CheckpointWriter::Options options = options_;
  options.retention = {.keep_latest = 1, .keep_every = 20};
  CheckpointWriter writer(files_, solo_, options, staging());
  for (const std::int64_t step : {10, 20, 30, 40}) {
    files_.plan(0, test::FaultKind::kFail);
    writer.begin(request(step));
    EXPECT_EQ(writer.wait().warnings, std::vector<std::string>{});
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000020", "step-00000040"}));
  // Of the last save: the parent is synced, then step 30 loses its name for good, then its files.
  std::vector<std::string> calls = files_.calls();
  ASSERT_GE(calls.size(), 4U);
  calls.erase(calls.begin(), calls.end() - 4);
  EXPECT_EQ(calls[0], "sync checkpoints");
  EXPECT_EQ(calls[1], "rename step-00000030");
  EXPECT_EQ(calls[2], "sync checkpoints");
  EXPECT_TRUE(calls[3].starts_with("remove .deleting-00000030-")) << calls[3];
}

TEST_F(Writer, ACheckpointCountsWhereAnOlderOneCannotBeDeleted) {
  CheckpointWriter::Options options = options_;
  options.retention = {.keep_latest = 1};
  CheckpointWriter writer(files_, solo_, options, staging());
  writer.begin(request(10));
  writer.wait();
  writer.begin(request(20));
  writer.wait();
  files_.plan(13, test::FaultKind::kFail);  // the rename of step 20, after the twelve calls that make step 30 durable
  writer.begin(request(30));
  const SavedCheckpoint saved = writer.wait();
  ASSERT_EQ(saved.warnings.size(), 1U);
  EXPECT_TRUE(saved.warnings[0].starts_with("an old checkpoint was not deleted: ")) << saved.warnings[0];
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000020", "step-00000030"}));
}

TEST_F(Writer, StaysQuietWhereASaveIsNotAdvanced) {
  {
    CheckpointWriter writer(files_, solo_, options_, staging());
    writer.begin(request(10));
  }
  ASSERT_EQ(names().size(), 1U);
  EXPECT_EQ(step_of_unfinished(names()[0]), 10);
  EXPECT_EQ(remove_leftovers(files_, options_.directory).size(), 1U);
  EXPECT_TRUE(names().empty());
}

TEST_F(Writer, SlicesThatAreNoPartitionAreRefusedOnAllRanks) {
  const auto messages = test::run_ranks(2, [&](test::ThreadRanks& threads, int rank) {
    test::ThreadExchange ranks(threads, rank);
    FaultyFileSystem files;
    test::save(files, ranks, options_, 10, state_.sources());  // both write everything
  });
  EXPECT_NE(messages[0].find("rank 0: "), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("block.0.gain: elements 12 to 12 of 12 expected, a slice has 12 from 0 on"),
            std::string::npos)
      << messages[0];
  EXPECT_EQ(messages[1], messages[0]);
  EXPECT_TRUE(names().empty());
}

// C2: a disk that holds one and a half checkpoints.
TEST_F(Writer, ADiskWithoutRoomForTheSaveRefusesItBeforeAnyByte) {
  const std::size_t bytes = staging_bytes(state_.sources());
  CheckpointWriter writer(files_, solo_, options_, staging());
  files_.limit(bytes * 3 / 2);
  writer.begin(request(10));
  writer.wait();
  const std::string before = names()[0];
  try {
    writer.begin(request(20));
    FAIL();
  } catch (const CheckpointError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(options_.directory + "/.saving-00000020-"), std::string::npos) << message;
    EXPECT_NE(message.find(fmt::format(": disk full: {} bytes needed, ", bytes)), std::string::npos) << message;
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000010"});
  EXPECT_EQ(num_wrong(options_.directory + "/step-00000010", 10), 0);
}

TEST_F(Writer, ADiskThatIsFullOnOneRankOrForTheManifestEndsTheSaveOnAll) {
  test::save_layout(files_, options_.directory, model_, "block", 2, 1, 10);
  for (const std::string full : {"shard-00001", "manifest.json"}) {
    const auto messages = test::run_ranks(2, [&](test::ThreadRanks& threads, int rank) {
      test::ThreadExchange ranks(threads, rank);
      FaultyFileSystem files;
      files.limit(100, full);
      SyntheticState state(model_, "block", 2, rank);
      state.fill(20);
      test::save(files, ranks, options_, 20, state.sources());
    });
    const int rank = full == "shard-00001" ? 1 : 0;
    EXPECT_TRUE(messages[0].starts_with(fmt::format("rank {}: {}/.saving-00000020-", rank, options_.directory)))
        << messages[0];
    EXPECT_NE(messages[0].find(full), std::string::npos) << messages[0];
    EXPECT_NE(messages[0].find(": disk full: "), std::string::npos) << messages[0];
    EXPECT_NE(messages[0].find(" bytes needed, 100 free"), std::string::npos) << messages[0];
    EXPECT_EQ(messages[1], messages[0]);
    EXPECT_EQ(names(), std::vector<std::string>{"step-00000010"});
    EXPECT_EQ(num_wrong(options_.directory + "/step-00000010", 10), 0);
  }
}

}  // namespace
}  // namespace tessera
