// Saved in one layout, loaded in another: the same values, and one root for all layouts of a state.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "tests/support/checkpoint/faulty_file_system.h"
#include "tests/support/checkpoint/synthetic_state.h"
#include "tests/support/checkpoint/thread_ranks.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using test::SyntheticState;

struct Layout {
  std::string wrap;
  int num_shards;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{{"block", 1}, {"block", 2}, {"root", 3}, {"2", 4}, {"block", 7}, {"root", 7}};
  return all;
}

class RoundTrip : public testing::Test {
 protected:
  std::string directory(std::size_t index) const { return directory_ / std::to_string(index); }

  test::TemporaryDirectory directory_;
  const ModelSpec model_ = test::tiny_model(3, 67, 12);
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

TEST_F(RoundTrip, EveryLayoutLoadsWhatEveryOtherSaved) {
  for (std::size_t from = 0; from < layouts().size(); ++from) {
    const SavedCheckpoint saved =
        test::save_layout(*files_, directory(from), model_, layouts()[from].wrap, layouts()[from].num_shards, 1, 5);
    for (const Layout& to : layouts()) {
      const auto messages = test::run_ranks(to.num_shards, [&](test::ThreadRanks& threads, int rank) {
        test::ThreadExchange ranks(threads, rank);
        SyntheticState state(model_, to.wrap, to.num_shards, rank);
        CheckpointReader reader = CheckpointReader::open(*files_, saved.folder);
        reader.load(ranks, state.targets());
        EXPECT_EQ(state.num_wrong(5), 0);
      });
      EXPECT_EQ(messages, std::vector<std::string>(messages.size())) << from;
    }
  }
}

TEST_F(RoundTrip, AllLayoutsOfAStateHaveOneRoot) {
  std::vector<std::uint64_t> roots, states;
  for (std::size_t i = 0; i < layouts().size(); ++i) {
    const SavedCheckpoint saved =
        test::save_layout(*files_, directory(i), model_, layouts()[i].wrap, layouts()[i].num_shards, 1, 5);
    roots.push_back(saved.root_hash);
    states.push_back(saved.state_hash);
  }
  EXPECT_EQ(roots, std::vector<std::uint64_t>(roots.size(), roots[0]));
  EXPECT_EQ(states, std::vector<std::uint64_t>(states.size(), states[0]));
  EXPECT_NE(test::save_layout(*files_, directory(9), model_, "block", 2, 1, 6).root_hash, roots[0]);
}

TEST_F(RoundTrip, TheStateHashIsThatOfTheMetrics) {
  SyntheticState state(model_, "block", 1, 0);
  state.fill(5);
  std::uint64_t expected = 0;
  for (const SourceSlice& slice : state.sources())
    expected += state_hash_part(hash_string(slice.name), static_cast<std::uint64_t>(slice.offset), slice.data,
                                static_cast<std::size_t>(slice.count));
  EXPECT_EQ(test::save_layout(*files_, directory(0), model_, "2", 4, 1, 5).state_hash, expected);
}

TEST_F(RoundTrip, WhatReplicasHoldIsWrittenOnceByItsFirstHolder) {
  const SavedCheckpoint once = test::save_layout(*files_, directory(0), model_, "block", 2, 1, 5);
  const SavedCheckpoint replicated = test::save_layout(*files_, directory(1), model_, "block", 2, 3, 5);
  EXPECT_EQ(replicated.bytes, once.bytes);
  EXPECT_EQ(replicated.root_hash, once.root_hash);
  EXPECT_EQ(files_->list(replicated.folder),
            (std::vector<DirectoryEntry>{
                {"manifest.json"}, {"shard-00000-of-00002.safetensors"}, {"shard-00001-of-00002.safetensors"}}));
}

TEST_F(RoundTrip, ShardsAreSafetensorsOfPlainNames) {
  const SavedCheckpoint saved = test::save_layout(*files_, directory(0), model_, "block", 2, 1, 5);
  const SafetensorsHeader header = read_safetensors_header(*files_, saved.folder + "/shard-00000-of-00002.safetensors");
  // Half of the root unit: 67 · 12 = 804 elements in a slot of 816, and a gain of 12 in one of 16, make 832.
  EXPECT_EQ(header.tensors[0], (SafetensorsEntry{"embedding.token.weight[0:416]", "F32", {416}, 0, 1664}));
  const SafetensorsHeader second = read_safetensors_header(*files_, saved.folder + "/shard-00001-of-00002.safetensors");
  EXPECT_EQ(second.tensors[1].name, "final_norm.weight");
  EXPECT_EQ(second.tensors[1].shape, Extents{12});
}

TEST_F(RoundTrip, TheTrainingStateComesBack) {
  const SavedCheckpoint saved = test::save_layout(*files_, directory(0), model_, "block", 2, 1, 5);
  const Manifest manifest = read_manifest(*files_, saved.folder);
  EXPECT_EQ(manifest.training, test::synthetic_training(5));
  EXPECT_EQ(manifest.model, test::synthetic_model_fields());
  EXPECT_EQ(manifest.step, 5);
  EXPECT_EQ(manifest.run_id, 7U);
  EXPECT_EQ(manifest.root_hash, saved.root_hash);
}

// A tensor of some MiB, cut at random by its writers and asked for at random.
TEST_F(RoundTrip, AnySlicesLoadFromAnyOthersAndEachBlockIsReadOnce) {
  const std::int64_t size = 700'001;
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) values[static_cast<std::size_t>(i)] = test::synthetic_value(1, "w", i);
  std::mt19937_64 random(3);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  for (int round = 0; round < 10; ++round) {
    const int num_ranks = 1 + static_cast<int>(below(3));
    std::vector<std::vector<SourceSlice>> slices(static_cast<std::size_t>(num_ranks));
    for (std::int64_t begin = 0; begin < size;) {
      const std::int64_t count = std::min(size - begin, 1 + below(300'000));
      slices[static_cast<std::size_t>(below(num_ranks))].push_back(
          {.name = "w", .shape = {size}, .offset = begin, .count = count, .data = values.data() + begin});
      begin += count;
    }
    std::string folder;
    const auto messages = test::run_ranks(num_ranks, [&](test::ThreadRanks& threads, int rank) {
      test::ThreadExchange ranks(threads, rank);
      const auto saved = test::save(*files_, ranks, {.directory = directory(static_cast<std::size_t>(round))}, 1,
                                    slices[static_cast<std::size_t>(rank)]);
      if (rank == 0) folder = saved.folder;
    });
    ASSERT_EQ(messages, std::vector<std::string>(messages.size()));

    test::FaultyFileSystem counting;
    CheckpointReader reader = CheckpointReader::open(counting, folder);
    std::vector<TargetSlice> targets;
    std::vector<std::vector<float>> memory;
    for (int i = 0; i < 12; ++i) {
      const std::int64_t offset = below(size), count = 1 + below(size - offset);
      memory.emplace_back(static_cast<std::size_t>(count));
      targets.push_back({.name = "w", .offset = offset, .count = count, .data = memory.back().data()});
    }
    const std::uint64_t before = counting.bytes_read();
    reader.read(targets);
    EXPECT_LE(counting.bytes_read() - before, reader.manifest().bytes());
    for (const TargetSlice& target : targets)
      ASSERT_TRUE(std::equal(target.data, target.data + target.count, values.begin() + target.offset));
  }
}

TEST_F(RoundTrip, ARankReadsOnlyTheBlocksThatHoldItsSlices) {
  const std::int64_t size = 8 << 18;  // 8 MiB
  const std::vector<float> values(static_cast<std::size_t>(size), 1.0F);
  SoloExchange solo;
  const auto saved = test::save(*files_, solo, {.directory = directory(0)}, 1,
                                {{.name = "w", .shape = {size}, .count = size, .data = values.data()}});
  test::FaultyFileSystem counting;
  CheckpointReader reader = CheckpointReader::open(counting, saved.folder);
  std::vector<float> memory(100);
  const std::uint64_t before = counting.bytes_read();
  reader.read({{.name = "w", .offset = 3 << 18, .count = 100, .data = memory.data()}});
  EXPECT_EQ(counting.bytes_read() - before, 1U << 20);
  EXPECT_EQ(memory, std::vector<float>(100, 1.0F));
}

TEST_F(RoundTrip, RefusesWhatIsNotThere) {
  const SavedCheckpoint saved = test::save_layout(*files_, directory(0), model_, "block", 1, 1, 5);
  CheckpointReader reader = CheckpointReader::open(*files_, saved.folder);
  std::vector<float> memory(12);
  const auto refusal = [&](const TargetSlice& target) {
    try {
      reader.read({target});
    } catch (const CheckpointError& error) {
      return std::string(error.what()).substr(saved.folder.size());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({.name = "none", .count = 1, .data = memory.data()}), ": holds no tensor none");
  EXPECT_EQ(refusal({.name = "block.0.gain", .offset = 5, .count = 8, .data = memory.data()}),
            ": 8 elements of block.0.gain from 5 on, it has 12");
  EXPECT_EQ(refusal({.name = "block.0.gain", .offset = 0, .count = 12, .data = memory.data()}), "");
}

}  // namespace
}  // namespace tessera
