// Saves sharded checkpoints while training goes on (docs/checkpoint-format.md, "Saving").
//
//   state       what runs behind the caller's back           entered by
//   idle        –                                            construction, the advance() that ends a save
//   writing     this rank's shard                            begin()
//   publishing  rank 0: manifest, syncs, rename, retention   the first advance()
//
//   writer.begin(request);                  all ranks; returns when the state has been copied
//   …                                       training steps; the state may change
//   writer.certify(certificate);            if the next step was made meanwhile
//   if (every rank is ready())              an agreement the step makes anyway
//     if (auto saved = writer.advance())    all ranks; twice a save, the second time with the result
//
// One thread uses a writer. Functions marked collective are called by all ranks at the same point; they throw the same CheckpointError on all
// of them, and the save is then over: its folder is removed, older checkpoints are as they were, and the next save may begin. An error of the
// exchange itself (a lost rank) passes through; nothing is removed then, since a peer may still be writing, and the writer begins no other save.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rank_exchange.h"
#include "checkpoint/retention.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/tensor_slice.h"
#include "runtime/device/allocator.h"

namespace tessera {

// What a rank saves. Over all ranks, the slices of a tensor cover it exactly once: of ranks that hold the same, the caller lets one write.
struct SaveRequest {
  std::int64_t step = 0;
  std::vector<SourceSlice> slices;  // none: this rank writes no file
  // Of rank 0; others may leave them empty.
  Fields model;
  TrainingState training;
};

struct SavedCheckpoint {
  std::int64_t step = 0;
  std::string folder;
  std::uint64_t bytes = 0;  // of all shards
  std::uint64_t root_hash = 0, state_hash = 0;
  std::vector<std::string> warnings;
};

// Bytes of staging memory that a save of these slices takes: one copy of them and a header.
std::size_t staging_bytes(const std::vector<SourceSlice>& slices);

class CheckpointWriter {
 public:
  struct Options {
    std::string directory;  // RUN/checkpoints; made at the first save
    std::uint64_t run_id = 0;
    RetentionPolicy retention;
  };

  // staging: at least staging_bytes() of every save to come, accounted where the caller's allocator accounts it; all the memory of the size of the
  // state that the writer ever uses. Its pages are touched here, so that no save waits for them. files and ranks must outlive the writer.
  CheckpointWriter(FileSystem& files, RankExchange& ranks, Options options, Buffer staging);
  // Waits for what runs; a save that was not advanced to its end stays unpublished.
  ~CheckpointWriter() = default;
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Collective, while no save is under way. The slices' data is copied and may change when it returns.
  void begin(SaveRequest request);
  bool in_flight() const { return state_ != State::kIdle; }
  // Adds what the step after the saved one was (rank 0's counts). Until the first advance().
  void certify(const ResumeCertificate& certificate);
  // Whether the next advance() has nothing of this rank to wait for.
  bool ready() const;
  // Collective, while a save is under way. Waits for what runs on any rank, and goes to the next state; the result where that is idle.
  std::optional<SavedCheckpoint> advance();
  // Collective: advances to the end.
  SavedCheckpoint wait();

 private:
  enum class State : std::uint8_t { kIdle, kWriting, kPublishing };

  // Where this rank's shard stands among those of all.
  struct Placement {
    int index = 0, num_shards = 0;
    std::uint64_t total_bytes = 0;
  };
  Placement place(std::int64_t step, std::uint64_t bytes);
  void start_writing(const std::string& file_name);
  void start_publishing(const std::vector<std::string>& reports);
  // Agrees on how the background work went; where it failed anywhere, ends the save.
  std::vector<std::string> agree_on_work();
  void abandon();

  FileSystem& files_;
  RankExchange& ranks_;
  Options options_;
  Buffer staging_;
  State state_ = State::kIdle;
  SaveRequest request_;
  ShardPlan plan_;
  std::string folder_;
  std::future<std::string> work_;  // last: what it uses must outlive it
};

}  // namespace tessera
