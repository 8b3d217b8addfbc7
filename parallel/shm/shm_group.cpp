#include "parallel/shm/shm_group.h"

#include <algorithm>
#include <utility>

#include "parallel/transfer.h"
#include "runtime/base/clock.h"

namespace tessera::shm {
namespace {

// Calls body(begin, length) for pieces of at most `limit` elements.
template <typename Body>
void for_each_piece(std::uint64_t count, std::uint64_t limit, Body body) {
  for (std::uint64_t begin = 0; begin < count; begin += limit) body(begin, std::min(limit, count - begin));
}

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(const Group& group, int position, const CommunicatorHooks& hooks, const CommunicatorOptions& options,
                  std::shared_ptr<ShmWorld> world, std::vector<Block> blocks, std::vector<int> world_ranks)
      : Communicator(group, position, hooks, std::move(world_ranks)),
        options_(options),
        world_(std::move(world)),
        blocks_(std::move(blocks)),
        sent_(blocks_.size()),
        received_(blocks_.size()) {}

  std::string_view backend() const override { return "shm"; }

 protected:
  void run_all_gather(const AllGatherOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    const std::uint64_t bytes = options.count * element;
    const auto part = [&](int member, std::uint64_t begin) {
      return static_cast<char*>(options.output) +
             (static_cast<std::uint64_t>(member) * options.count + begin) * element;
    };
    if (is_eager(options.count, element)) {
      copy_bytes(own().eager[parity()], options.input, bytes);
      arrive(false);
      for_each_peer([&](int peer) { copy_bytes(part(peer, 0), head(peer).eager[parity()], bytes); });
      copy_bytes(part(rank(), 0), options.input, bytes);
    } else if (show({{options.input, bytes}})) {
      for_each_peer([&](int peer) {
        const std::byte* source = operand(peer, 0);
        for_each_piece(options.count, options_.max_chunk_elements, [&](std::uint64_t begin, std::uint64_t n) {
          copy_bytes(part(peer, begin), source + begin * element, n * element);
        });
      });
      // The peers need to know that this rank has read theirs, not that it has its own.
      post_phase();
      copy_bytes(part(rank(), 0), options.input, bytes);
      await_phase();
    } else {
      const char* input = static_cast<const char*>(options.input);
      for_each_piece(options.count, piece_elements(element, 1), [&](std::uint64_t begin, std::uint64_t n) {
        copy_bytes(own().staging[half()], input + begin * element, n * element);
        next_phase();
        for_each_peer([&](int peer) { copy_bytes(part(peer, begin), head(peer).staging[last_half()], n * element); });
      });
      copy_bytes(part(rank(), 0), options.input, bytes);
    }
    ++calls_;
  }

  void run_reduce_scatter(const ReduceScatterOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    std::uint64_t total = 0;
    std::vector<Operand> operands;
    for (const ReduceScatterPart& part : options.parts) {
      const std::uint64_t count = offset_of(part.counts, size());
      operands.push_back({part.input, count * element});
      total += count;
    }
    if (is_eager(total, element)) {
      std::byte* slot = own().eager[parity()];
      for (const Operand& part : operands) {
        copy_bytes(slot, part.data, part.bytes);
        slot += part.bytes;
      }
      arrive(false);
      std::uint64_t before = 0;
      for (std::size_t i = 0; i < operands.size(); ++i) {
        reduce_slice(options, i, [&](int member) { return head(member).eager[parity()] + before; });
        before += operands[i].bytes;
      }
    } else if (show(operands)) {
      for (std::size_t i = 0; i < operands.size(); ++i) {
        reduce_slice(options, i, [&](int member) { return operand(member, i); });
      }
      next_phase();
    } else {
      for (const ReduceScatterPart& part : options.parts) reduce_scatter_staged(options, part);
    }
    ++calls_;
  }

  // Small: everybody reads everything. Direct: each rank sums its slice in place (only it writes that slice of its
  // data, and only it reads that slice of the others'), then collects the other slices from those who summed them.
  void run_all_reduce(const AllReduceOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    char* data = static_cast<char*>(options.data);
    if (is_eager(options.count, element)) {
      copy_bytes(own().eager[parity()], data, options.count * element);
      arrive(false);
      reduce(options.dtype, options.reduce, data, sources([&](int member) { return head(member).eager[parity()]; }),
             options.count);
    } else if (show({{data, options.count * element}})) {
      const std::vector<std::uint64_t> counts = even_slices(options.count, size());
      const auto slice = [&](int member) { return offset_of(counts, member) * element; };
      reduce_pieces(
          options.dtype, options.reduce, data + slice(rank()), counts[static_cast<std::size_t>(rank())],
          [&](int member) { return operand(member, 0) + slice(rank()); }, ResultUse::kAtOnce);
      next_phase();
      for_each_peer([&](int peer) {
        for_each_piece(counts[static_cast<std::size_t>(peer)], options_.max_chunk_elements,
                       [&](std::uint64_t begin, std::uint64_t n) {
                         const std::uint64_t at = slice(peer) + begin * element;
                         copy_bytes(data + at, operand(peer, 0) + at, n * element);
                       });
      });
      next_phase();
    } else {
      for_each_piece(options.count, piece_elements(element, 1), [&](std::uint64_t begin, std::uint64_t n) {
        copy_bytes(own().staging[half()], data + begin * element, n * element);
        next_phase();
        reduce(options.dtype, options.reduce, data + begin * element,
               sources([&](int member) { return head(member).staging[last_half()]; }), n);
      });
    }
    ++calls_;
  }

  void run_broadcast(const BroadcastOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    const bool root = rank() == options.root;
    char* data = static_cast<char*>(options.data);
    if (is_eager(options.count, element)) {
      if (root) copy_bytes(own().eager[parity()], data, options.count * element);
      arrive(false);
      if (!root) copy_bytes(data, head(options.root).eager[parity()], options.count * element);
    } else {
      // Only the root's operand is read, so only its place decides.
      if (root) {
        show({{data, options.count * element}});
      } else {
        arrive(false);
      }
      if (head(options.root).lines[parity()].direct != 0) {
        for_each_piece(root ? 0 : options.count, options_.max_chunk_elements,
                       [&](std::uint64_t begin, std::uint64_t n) {
                         copy_bytes(data + begin * element, operand(options.root, 0) + begin * element, n * element);
                       });
        next_phase();
      } else {
        for_each_piece(options.count, piece_elements(element, 1), [&](std::uint64_t begin, std::uint64_t n) {
          if (root) copy_bytes(own().staging[half()], data + begin * element, n * element);
          next_phase();
          if (!root) copy_bytes(data + begin * element, head(options.root).staging[last_half()], n * element);
        });
      }
    }
    ++calls_;
  }

  void run_send(const SendOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    const char* data = static_cast<const char*>(options.data);
    Mailbox& box = blocks_[static_cast<std::size_t>(rank())].mailbox(options.peer);
    Receipt& receipt = blocks_[static_cast<std::size_t>(options.peer)].receipt(rank());
    std::uint64_t& sent = sent_[static_cast<std::size_t>(options.peer)];
    const auto show_call = [&] {
      box.fingerprint[sent % 2] = current_call().fingerprint;
      if (current_call().recorded) box.calls[sent % 2] = current_call().identity;
    };
    if (const auto offset = world_->own.offset_of(data, options.count * element)) {
      show_call();
      box.offset[sent % 2] = *offset;
      box.direct[sent % 2] = 1;
      post(box.posted, ++sent);
    } else {
      const std::uint64_t limit = piece_elements(element, 1);
      std::uint64_t begin = 0;
      do {
        const std::uint64_t n = std::min(limit, options.count - begin);
        if (sent >= 2) await_one(options.peer, receipt.taken, sent - 1);  // the half to be written is free again
        show_call();
        std::byte* piece = own().send_staging[sent % 2];
        copy_bytes(piece, data + begin * element, n * element);
        box.offset[sent % 2] = blocks_[static_cast<std::size_t>(rank())].offset_of(piece);
        box.direct[sent % 2] = 0;
        post(box.posted, ++sent);
        begin += n;
      } while (begin < options.count);
    }
    await_one(options.peer, receipt.taken, sent);
  }

  void run_recv(const RecvOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    const Block& peer = blocks_[static_cast<std::size_t>(options.peer)];
    Mailbox& box = peer.mailbox(rank());
    Receipt& receipt = blocks_[static_cast<std::size_t>(rank())].receipt(options.peer);
    std::uint64_t& received = received_[static_cast<std::size_t>(options.peer)];
    std::uint64_t begin = 0;
    do {
      await_one(options.peer, box.posted, received + 1);
      if (compares() && box.fingerprint[received % 2] != current_call().fingerprint) {
        refuse_message(box.calls[received % 2]);
      }
      const std::byte* source = peer.at(box.offset[received % 2]);
      const bool direct = box.direct[received % 2] != 0;
      const std::uint64_t n = direct ? options.count : std::min(piece_elements(element, 1), options.count - begin);
      for_each_piece(n, options_.max_chunk_elements, [&](std::uint64_t at, std::uint64_t m) {
        copy_bytes(static_cast<char*>(options.data) + (begin + at) * element, source + at * element, m * element);
      });
      begin += n;
      post(receipt.taken, ++received);
    } while (begin < options.count);
  }

  void run_barrier() override {
    arrive(false);
    ++calls_;
  }

 private:
  struct Operand {
    const void* data;
    std::uint64_t bytes;
  };

  BlockHead& head(int member) const { return blocks_[static_cast<std::size_t>(member)].head(); }
  BlockHead& own() const { return head(rank()); }
  std::size_t parity() const { return calls_ % 2; }
  // Which staging half the coming phase publishes, and which the last one did.
  std::size_t half() const { return (phase_ + 1) % 2; }
  std::size_t last_half() const { return phase_ % 2; }

  bool is_eager(std::uint64_t count, std::size_t element) const {
    return count * element <= kEagerBytes && count <= options_.max_chunk_elements;
  }
  // Elements of one staged piece for each of num_targets.
  std::uint64_t piece_elements(std::size_t element, std::size_t num_targets) const {
    return std::max<std::uint64_t>(
        1, std::min<std::uint64_t>(kStagingBytes / element / num_targets, options_.max_chunk_elements));
  }

  // Starting behind the own rank, so that not everybody reads from the same member at once.
  template <typename Body>
  void for_each_peer(Body body) const {
    for (int step = 1; step < size(); ++step) body((rank() + step) % size());
  }

  template <typename SourceOf>
  std::vector<const void*> sources(SourceOf source_of) const {
    std::vector<const void*> all;
    for (int member = 0; member < size(); ++member) all.push_back(source_of(member));
    return all;
  }

  // Where operand i of this call lies, by the member's own word; only between arrival and the last phase of a direct
  // call.
  const std::byte* operand(int member, std::size_t i) const {
    return blocks_[static_cast<std::size_t>(member)].at(head(member).operands[parity()][i]);
  }

  // Publishes the call, waits until everybody has, and compares: the identity rides on the flag that the call needs anyway.
  void arrive(bool direct) {
    CallLine& line = own().lines[parity()];
    line.direct = direct ? 1 : 0;
    line.fingerprint = current_call().fingerprint;
    if (current_call().recorded) own().calls[parity()] = current_call().identity;
    post(line.arrival, calls_ + 1);
    await_all([&](int member) -> Signal& { return head(member).lines[parity()].arrival; }, calls_ + 1);
    if (!compares()) return;
    for (int member = 0; member < size(); ++member) {
      if (head(member).lines[parity()].fingerprint != current_call().fingerprint) refuse();
    }
  }

  [[noreturn]] void refuse() const {
    std::vector<CollectiveIdentity> calls;
    for (int member = 0; member < size(); ++member) calls.push_back(head(member).calls[parity()]);
    refuse_mismatch(calls);
  }

  // Publishes the call with its operands; true where all members' operands lie in their arenas.
  bool show(const std::vector<Operand>& operands) {
    bool direct = operands.size() <= kMaxOperands;
    for (std::size_t i = 0; i < operands.size() && direct; ++i) {
      const auto offset = world_->own.offset_of(operands[i].data, operands[i].bytes);
      direct = operands[i].bytes == 0 || offset.has_value();
      own().operands[parity()][i] = offset.value_or(0);
    }
    arrive(direct);
    for (int member = 0; member < size(); ++member) {
      if (head(member).lines[parity()].direct == 0) return false;
    }
    return true;
  }

  // One more synchronisation inside a call, whole or in its two halves.
  void next_phase() {
    post_phase();
    await_phase();
  }
  void post_phase() { post(own().phase.reached, ++phase_); }
  void await_phase() {
    await_all([&](int member) -> Signal& { return head(member).phase.reached; }, phase_);
  }

  template <typename SignalOf>
  void await_all(SignalOf signal_of, std::uint64_t target) {
    const std::int64_t before = times_waits() ? monotonic_ns() : 0;
    std::vector<int> missing;
    for_each_peer([&](int peer) {
      // Once somebody is missing the others only get a look, not a wait of their own.
      if (!await(signal_of(peer), target, missing.empty() ? options_.timeout_seconds : 0.0)) missing.push_back(peer);
    });
    if (times_waits()) add_waited(monotonic_ns() - before);
    if (!missing.empty()) stall(missing, options_.timeout_seconds);
  }

  void await_one(int peer, Signal& signal, std::uint64_t target) {
    const std::int64_t before = times_waits() ? monotonic_ns() : 0;
    const bool came = await(signal, target, options_.timeout_seconds);
    if (times_waits()) add_waited(monotonic_ns() - before);
    if (!came) stall({peer}, options_.timeout_seconds);
  }

  template <typename InputOf>
  void reduce_pieces(DType dtype, ReduceOp op, void* output, std::uint64_t count, InputOf input_of, ResultUse use) {
    const std::size_t element = size_of(dtype);
    for_each_piece(count, options_.max_chunk_elements, [&](std::uint64_t begin, std::uint64_t n) {
      reduce(dtype, op, static_cast<char*>(output) + begin * element,
             sources([&](int member) { return input_of(member) + begin * element; }), n, use);
    });
  }

  // input_of(member): where that member's whole part i lies.
  template <typename InputOf>
  void reduce_slice(const ReduceScatterOptions& options, std::size_t i, InputOf input_of) {
    const ReduceScatterPart& part = options.parts[i];
    const std::uint64_t before = offset_of(part.counts, rank()) * size_of(options.dtype);
    reduce_pieces(
        options.dtype, options.reduce, part.output, part.counts[static_cast<std::size_t>(rank())],
        [&](int member) { return input_of(member) + before; }, ResultUse::kLater);
  }

  // In each round every member puts the next piece for every other into its staging half, at a fixed place per target.
  void reduce_scatter_staged(const ReduceScatterOptions& options, const ReduceScatterPart& part) {
    const std::size_t element = size_of(options.dtype);
    const std::uint64_t limit = piece_elements(element, blocks_.size());
    const std::uint64_t longest = *std::max_element(part.counts.begin(), part.counts.end());
    const char* input = static_cast<const char*>(part.input);
    for (std::uint64_t begin = 0; begin < longest; begin += limit) {
      const auto length = [&](int target) {
        const std::uint64_t count = part.counts[static_cast<std::size_t>(target)];
        return begin < count ? std::min(limit, count - begin) : 0;
      };
      const auto own_piece = [&](int target) { return input + (offset_of(part.counts, target) + begin) * element; };
      for_each_peer([&](int peer) {
        copy_bytes(own().staging[half()] + static_cast<std::uint64_t>(peer) * limit * element, own_piece(peer),
                   length(peer) * element);
      });
      next_phase();
      reduce(options.dtype, options.reduce, static_cast<char*>(part.output) + begin * element, sources([&](int member) {
               return member == rank()
                          ? static_cast<const void*>(own_piece(rank()))
                          : head(member).staging[last_half()] + static_cast<std::uint64_t>(rank()) * limit * element;
             }),
             length(rank()));
    }
  }

  CommunicatorOptions options_;
  std::shared_ptr<ShmWorld> world_;
  std::vector<Block> blocks_;  // by position
  std::uint64_t calls_ = 0;    // collective calls that all members make; send and recv have counts of their own
  std::uint64_t phase_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages, by peer
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(const Group& group, int position, const CommunicatorHooks& hooks,
                                                    const CommunicatorOptions& options, std::shared_ptr<ShmWorld> world,
                                                    std::vector<Block> blocks, std::vector<int> world_ranks) {
  return std::make_unique<ShmCommunicator>(group, position, hooks, options, std::move(world), std::move(blocks),
                                           std::move(world_ranks));
}

}  // namespace tessera::shm
