// Token files, windows and their order. A training sequence is a window of seq_len + 1 tokens: seq_len inputs and the
// seq_len targets one further. Windows of one file start every seq_len tokens (neighbours share one token); a file of n
// tokens holds floor((n - 1) / seq_len) windows; the tail is dropped and logged. Windows never cross files.
//
// Files hold token ids only: no target of a file is ever ignored. A file too short for one window is left out with a
// warning where others of its source have windows, and refused otherwise.
//
// Formats: llm.c version 1 (magic 20240520, u16), version 7 (magic 20240801, u32) (256 i32 of header: magic, version,
// number of tokens), and raw little-endian u16 without a header. Files are validated when opened and read window by window:
// what is not token data (text, gzip, another framework's format, big-endian) is refused by name. A raw file carries no
// magic: it is refused where its bytes read as text or as wider integers, or where a Megatron index lies beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/training_state.h"
#include "runtime/config/job_config.h"

namespace tessera {

// One open file. Throws DataError: path, what was found, what was expected; also where the file has become shorter since it was opened.
class TokenFile {
 public:
  static TokenFile open(const std::string& path);
  const std::string& path() const;
  std::int64_t num_tokens() const;
  // Tokens from position `first` on; ids are not checked against a vocabulary here. One read of the file a call.
  void read(std::int64_t first, std::span<std::uint32_t> tokens) const;
  std::uint32_t operator[](std::int64_t i) const;
  // All tokens in order, visit(position of the first, tokens) a block.
  void for_blocks(const std::function<void(std::int64_t, std::span<const std::uint32_t>)>& visit) const;
  std::string format() const;  // "llm.c u16", "llm.c u32", "raw u16"
  std::int64_t num_bytes() const;
  // Device and inode: equal for two names of one file.
  std::pair<std::uint64_t, std::uint64_t> identity() const;
  // DataError (file, position, id, vocab_size) at the first of `tokens`, read from `first` on, outside [0, vocab_size).
  void check_ids(std::int64_t first, std::span<const std::uint32_t> tokens, std::int64_t vocab_size) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// Sequences of a set of globs.
class TokenDataset {
 public:
  // Expands the globs (sorted by bytes; no match, and a file named twice, are errors), opens and validates every file.
  // Ids are checked here for files up to 1 GiB, and for every window that read() returns. weights repeat or thin a
  // source's windows: weight w contributes floor(w · windows) window visits per epoch (w = 1: each once; the part of w
  // beyond whole passes takes windows spread evenly over the source).
  TokenDataset(const std::vector<DataSource>& sources, std::int64_t seq_len, std::int64_t vocab_size);

  std::int64_t num_sequences() const;  // windows of one epoch
  std::int64_t num_tokens() const;
  const std::vector<TokenFile>& files() const;
  // What a checkpoint keeps of them, in the same order.
  std::vector<DataFile> file_list() const;
  // The dataset of some of its files (indices, ascending), each in its source; a source without any of them goes.
  TokenDataset only(const std::vector<std::size_t>& files) const;
  // inputs[seq_len], targets[seq_len] of window i in file order.
  void read(std::int64_t sequence, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;
  // A hash of names, sizes and formats of the files.
  std::uint64_t digest() const;

 private:
  struct State;
  explicit TokenDataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Which window is the n-th of the run. A pure function of (seed, epoch, n): no state, no rank. Epochs drop the tail
// that does not fill a global batch. Without shuffle: file order. With: a keyed permutation per epoch. An order that follows another begins at a
// batch and an epoch of the run.
class SequenceOrder {
 public:
  SequenceOrder(std::int64_t num_sequences, std::int64_t global_batch_size, std::uint64_t seed, bool shuffle,
                std::int64_t first_batch = 0, std::int64_t first_epoch = 0);
  std::int64_t first_batch() const { return first_batch_; }
  std::int64_t first_epoch() const { return first_epoch_; }
  std::int64_t batches_per_epoch() const;  // DataError at construction where 0: an epoch smaller than global_batch_size
  std::int64_t dropped_per_epoch() const;
  // Window index of sequence `slot` (0 … global_batch_size-1) of global batch `batch` (0 …, counted over the whole
  // run, from first_batch on).
  std::int64_t window(std::int64_t batch, std::int64_t slot) const;
  std::int64_t epoch_of(std::int64_t batch) const;

 private:
  std::int64_t num_sequences_, global_batch_size_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t first_batch_, first_epoch_;
};

// Writes an llm.c file (u16 where every id fits and vocab_size <= 65536, else u32), atomically (temporary name, fsync,
// rename).
void write_token_file(const std::string& path, std::span<const std::uint32_t> tokens, std::int64_t vocab_size);

}  // namespace tessera
