#include "parallel/mpi/mpi_group.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "parallel/mpi/transfers.h"
#include "parallel/transfer.h"
#include "runtime/base/clock.h"

namespace tessera::mpi {
namespace {

// Sums need the pieces of all peers side by side: pieces of this size at most, and this much for all of them together, twice.
constexpr std::uint64_t kReducePieceBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kReduceBufferBytes = std::uint64_t{32} << 20;
// all_reduce up to here: everybody sends everything to everybody, one step instead of two.
constexpr std::uint64_t kSmallBytes = std::uint64_t{4} << 10;

std::uint64_t num_pieces(std::uint64_t count, std::uint64_t limit) {
  return (count + limit - 1) / limit;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(const Group& group, int position, const CommunicatorHooks& hooks, const CommunicatorOptions& options,
                  CommHandle comm, std::vector<int> world_ranks)
      : Communicator(group, position, hooks, std::move(world_ranks)), options_(options), comm_(std::move(comm)) {}

  std::string_view backend() const override { return "mpi"; }

 protected:
  void run_all_gather(const AllGatherOptions& options) override {
    compare_calls();
    const std::vector<std::uint64_t> counts(static_cast<std::size_t>(size()), options.count);
    gather(options.input, options.output, counts, size_of(options.dtype));
    copy_bytes(static_cast<char*>(options.output) +
                   static_cast<std::uint64_t>(rank()) * options.count * size_of(options.dtype),
               options.input, options.count * size_of(options.dtype));
  }

  void run_reduce_scatter(const ReduceScatterOptions& options) override {
    compare_calls();
    for (const ReduceScatterPart& part : options.parts) {
      reduce_scatter(part.input, part.output, part.counts, options.dtype, options.reduce);
    }
  }

  void run_all_reduce(const AllReduceOptions& options) override {
    compare_calls();
    const std::size_t element = size_of(options.dtype);
    char* data = static_cast<char*>(options.data);
    if (options.count * element <= kSmallBytes && options.count <= options_.max_chunk_elements) {
      const std::uint64_t bytes = options.count * element;
      std::vector<char> all(bytes * static_cast<std::size_t>(size()));
      Transfers transfers(comm_.get());
      std::vector<const void*> sources;
      for (int member = 0; member < size(); ++member)
        sources.push_back(all.data() + static_cast<std::size_t>(member) * bytes);
      sources[static_cast<std::size_t>(rank())] = data;
      for_each_peer([&](int peer) {
        transfers.recv(peer, all.data() + static_cast<std::size_t>(peer) * bytes, bytes, tag());
        transfers.send(peer, data, bytes, tag());
      });
      finish(transfers);
      reduce(options.dtype, options.reduce, data, sources, options.count);
      return;
    }
    const std::vector<std::uint64_t> counts = even_slices(options.count, size());
    char* own = data + offset_of(counts, rank()) * element;
    reduce_scatter(data, own, counts, options.dtype, options.reduce);
    gather(own, data, counts, element);
  }

  // A binomial tree, each piece passed on as soon as it is here: log2(size()) steps, count bytes received once by every rank.
  void run_broadcast(const BroadcastOptions& options) override {
    compare_calls();
    const std::size_t element = size_of(options.dtype);
    const int relative = (rank() - options.root + size()) % size();
    const auto member = [&](int r) { return (r + options.root) % size(); };
    // A rank hears from whom its lowest set bit is taken off, and tells those that differ in a lower bit.
    int span = 1;
    while (span < size() && (relative & span) == 0) span *= 2;
    Transfers sends(comm_.get());
    for_each_message(options.count, element, [&](std::uint64_t begin, std::uint64_t n) {
      char* piece = static_cast<char*>(options.data) + begin * element;
      if (relative != 0) {
        Transfers receive(comm_.get());
        receive.recv(member(relative - span), piece, n * element, tag());
        finish(receive);
      }
      for (int step = span / 2; step > 0; step /= 2) {
        if (relative + step < size()) sends.send(member(relative + step), piece, n * element, tag());
      }
    });
    finish(sends);
  }

  void run_send(const SendOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    Transfers transfers(comm_.get());
    if (compares()) {
      transfers.send(options.peer, &current_call().identity, sizeof(CollectiveIdentity), kIdentityTag);
      finish(transfers);
    }
    for_each_message(options.count, element, [&](std::uint64_t begin, std::uint64_t n) {
      transfers.send(options.peer, static_cast<const char*>(options.data) + begin * element, n * element, kMessageTag);
      finish(transfers);
    });
  }

  void run_recv(const RecvOptions& options) override {
    const std::size_t element = size_of(options.dtype);
    Transfers transfers(comm_.get());
    if (compares()) {
      CollectiveIdentity sent;
      transfers.recv(options.peer, &sent, sizeof sent, kIdentityTag);
      finish(transfers);
      if (!calls_match(sent, current_call().identity)) refuse_message(sent);
    }
    for_each_message(options.count, element, [&](std::uint64_t begin, std::uint64_t n) {
      transfers.recv(options.peer, static_cast<char*>(options.data) + begin * element, n * element, kMessageTag);
      finish(transfers);
    });
  }

  // Everybody hears from everybody, so that a missing rank can be named.
  void run_barrier() override {
    if (compares()) return compare_calls();  // nobody knows the extremes of all before all have come
    Transfers transfers(comm_.get());
    for_each_peer([&](int peer) {
      transfers.recv(peer, nullptr, 0, tag());
      transfers.send(peer, nullptr, 0, tag());
    });
    finish(transfers);
  }

 private:
  // Before the call, with tags of its own: nothing of this meets the data of a rank that makes another call.
  void compare_calls() {
    if (!compares()) return;
    if (size() > kLargestExchange && fingerprints_agree()) return;
    std::vector<CollectiveIdentity> all(static_cast<std::size_t>(size()));
    all[static_cast<std::size_t>(rank())] = current_call().identity;
    Transfers transfers(comm_.get());
    for_each_peer([&](int peer) {
      transfers.recv(peer, &all[static_cast<std::size_t>(peer)], sizeof(CollectiveIdentity), kExchangeTag);
      transfers.send(peer, &current_call().identity, sizeof(CollectiveIdentity), kExchangeTag);
    });
    finish(transfers);
    for (const CollectiveIdentity& one : all) {
      if (!calls_match(one, current_call().identity)) refuse_mismatch(all);
    }
  }

  // Whether the smallest and the largest fingerprint of all are one, by dissemination: in round i a rank hears from the one 2^i before it and
  // tells the one 2^i behind, log2(size()) steps of 16 bytes. (A rank that does not come is then named by its neighbours alone, and by the logs.)
  bool fingerprints_agree() {
    std::array<std::uint64_t, 2> extremes = {current_call().fingerprint, current_call().fingerprint};
    for (int distance = 1; distance < size(); distance *= 2) {
      std::array<std::uint64_t, 2> heard{};
      Transfers transfers(comm_.get());
      transfers.recv((rank() - distance + size()) % size(), heard.data(), sizeof heard, kCompareTag);
      transfers.send((rank() + distance) % size(), extremes.data(), sizeof extremes, kCompareTag);
      finish(transfers);
      extremes = {std::min(extremes[0], heard[0]), std::max(extremes[1], heard[1])};
    }
    return extremes[0] == extremes[1];
  }

  // A send and the recv it meets are two ops but one kind of message; every other op has its own, so that unequal calls stall
  // instead of exchanging data.
  static constexpr int kMessageTag = 100;
  // Groups up to this size exchange whole identities, size() - 1 messages of 96 bytes: everybody hears from everybody, so that a missing rank is named.
  static constexpr int kLargestExchange = 16;
  static constexpr int kCompareTag = 101;
  static constexpr int kExchangeTag = 102;
  static constexpr int kIdentityTag = 103;
  int tag() const { return static_cast<int>(current_call().identity.op); }

  template <typename Body>
  void for_each_peer(Body body) const {
    for (int step = 1; step < size(); ++step) body((rank() + step) % size());
  }

  std::uint64_t message_elements(std::size_t element) const {
    return std::min<std::uint64_t>(options_.max_chunk_elements, kMessageBytes / element);
  }

  // body(begin, n) for each message that `count` elements take; one empty message for none.
  template <typename Body>
  void for_each_message(std::uint64_t count, std::size_t element, Body body) const {
    const std::uint64_t limit = message_elements(element);
    std::uint64_t begin = 0;
    do {
      body(begin, std::min(limit, count - begin));
      begin += limit;
    } while (begin < count);
  }

  void finish(Transfers& transfers) {
    const std::int64_t before = times_waits() ? monotonic_ns() : 0;
    const std::vector<int> missing = transfers.wait(options_.timeout_seconds);
    if (times_waits()) add_waited(monotonic_ns() - before);
    if (missing.empty()) return;
    comm_.abandon();
    stall(missing, options_.timeout_seconds);
  }

  // Slice r of output = own of rank r, for all r but the own. One step; every rank receives all slices but its own once.
  void gather(const void* own, void* output, const std::vector<std::uint64_t>& counts, std::size_t element) {
    const std::uint64_t limit = message_elements(element);
    const std::uint64_t longest = *std::max_element(counts.begin(), counts.end());
    for (std::uint64_t begin = 0; begin < longest; begin += limit) {
      const auto length = [&](int member) {
        const std::uint64_t count = counts[static_cast<std::size_t>(member)];
        return begin < count ? std::min(limit, count - begin) : 0;
      };
      Transfers transfers(comm_.get());
      for_each_peer([&](int peer) {
        if (length(peer) == 0) return;
        transfers.recv(peer, static_cast<char*>(output) + (offset_of(counts, peer) + begin) * element,
                       length(peer) * element, tag());
      });
      for_each_peer([&](int peer) {
        if (length(rank()) == 0) return;
        transfers.send(peer, static_cast<const char*>(own) + begin * element, length(rank()) * element, tag());
      });
      finish(transfers);
    }
  }

  // Sums cannot be left to MPI, whose order depends on algorithm and size: the own slice of every peer is received whole and added in the
  // order of the tree. While piece i is added, piece i + 1 travels.
  void reduce_scatter(const void* input, void* output, const std::vector<std::uint64_t>& counts, DType dtype,
                      ReduceOp op) {
    const std::size_t element = size_of(dtype);
    const auto peers = static_cast<std::uint64_t>(size() - 1);
    const std::uint64_t limit = std::max<std::uint64_t>(
        1, std::min(options_.max_chunk_elements, std::min(kReducePieceBytes, kReduceBufferBytes / peers) / element));
    const std::uint64_t mine = counts[static_cast<std::size_t>(rank())];
    const std::uint64_t rounds = num_pieces(*std::max_element(counts.begin(), counts.end()), limit);
    const auto own_input = [&](int member, std::uint64_t begin) {
      return static_cast<const char*>(input) + (offset_of(counts, member) + begin) * element;
    };
    const std::uint64_t stride = std::min(limit, mine) * element;
    for (std::vector<char>& buffer : received_)
      buffer.resize(std::max<std::size_t>(buffer.size(), stride * counts.size()));
    Transfers transfers[2] = {Transfers(comm_.get()), Transfers(comm_.get())};
    const auto start = [&](std::uint64_t round) {
      const std::uint64_t begin = round * limit;
      for_each_peer([&](int peer) {
        if (begin >= mine) return;
        transfers[round % 2].recv(peer, received_[round % 2].data() + static_cast<std::size_t>(peer) * stride,
                                  std::min(limit, mine - begin) * element, tag());
      });
      for_each_peer([&](int peer) {
        const std::uint64_t count = counts[static_cast<std::size_t>(peer)];
        if (begin >= count) return;
        transfers[round % 2].send(peer, own_input(peer, begin), std::min(limit, count - begin) * element, tag());
      });
    };
    if (rounds > 0) start(0);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) start(round + 1);
      finish(transfers[round % 2]);
      const std::uint64_t begin = round * limit;
      if (begin >= mine) continue;
      std::vector<const void*> sources;
      for (int member = 0; member < size(); ++member) {
        sources.push_back(received_[round % 2].data() + static_cast<std::size_t>(member) * stride);
      }
      sources[static_cast<std::size_t>(rank())] = own_input(rank(), begin);
      reduce(dtype, op, static_cast<char*>(output) + begin * element, sources, std::min(limit, mine - begin));
    }
  }

  CommunicatorOptions options_;
  CommHandle comm_;
  std::vector<char> received_[2];
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const Group& group, int position, const CommunicatorHooks& hooks,
                                                    const CommunicatorOptions& options, CommHandle comm,
                                                    std::vector<int> world_ranks) {
  return std::make_unique<MpiCommunicator>(group, position, hooks, options, std::move(comm), std::move(world_ranks));
}

}  // namespace tessera::mpi
