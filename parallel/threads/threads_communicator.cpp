#include "parallel/threads/threads_communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "parallel/transfer.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

// The pointers that each member shows to the others.
struct Shown {
  std::vector<std::vector<const void*>> pointers;
  std::vector<CollectiveIdentity> calls;  // beside them
  const void* operator()(int member, std::size_t index) const {
    const auto& of_member = pointers[static_cast<std::size_t>(member)];
    require(index < of_member.size(), "threads: members of a group made different calls");
    return of_member[index];
  }
};

// What the members of one group share. Everything is guarded by the mutex except the data that the pointers lead to: a
// pointer is read between two synchronisations, in which its owner leaves the data alone.
struct GroupState {
  explicit GroupState(Group g)
      : group(std::move(g)),
        steps(group.members.size()),
        shown{std::vector<std::vector<const void*>>(group.members.size()),
              std::vector<CollectiveIdentity>(group.members.size())},
        mailboxes(group.members.size() * group.members.size()) {}

  struct Mailbox {
    std::uint64_t posted = 0;
    std::uint64_t taken = 0;
    const void* data = nullptr;
    CollectiveIdentity call;
  };

  const Group group;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> steps;  // synchronisations each member has reached
  Shown shown;
  std::vector<Mailbox> mailboxes;  // sender · size + receiver
};

struct World {
  std::mutex mutex;
  std::vector<std::shared_ptr<GroupState>> groups;  // in the order of creation, which is the same on every rank
};

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(std::shared_ptr<GroupState> state, int position, const CommunicatorHooks& hooks,
                      const CommunicatorOptions& options)
      : Communicator(state->group, position, hooks, state->group.members),
        state_(std::move(state)),
        options_(options) {}

  std::string_view backend() const override { return "threads"; }

 protected:
  void run_all_gather(const AllGatherOptions& options) override {
    const std::uint64_t bytes = options.count * size_of(options.dtype);
    const Shown inputs = publish({options.input});
    for (int peer = 0; peer < size(); ++peer) {
      copy(static_cast<char*>(options.output) + static_cast<std::uint64_t>(peer) * bytes, inputs(peer, 0),
           options.count, options.dtype);
    }
    synchronise();
  }

  void run_reduce_scatter(const ReduceScatterOptions& options) override {
    std::vector<const void*> inputs;
    for (const ReduceScatterPart& part : options.parts) inputs.push_back(part.input);
    const Shown peers = publish(std::move(inputs));
    for (std::size_t i = 0; i < options.parts.size(); ++i) {
      const ReduceScatterPart& part = options.parts[i];
      reduce_slice(part.output, offset_of(part.counts, rank()), part.counts[static_cast<std::size_t>(rank())],
                   options.dtype, options.reduce, [&](int peer) { return peers(peer, i); });
    }
    synchronise();
  }

  // Each rank sums its slice in place (nobody else touches that slice of its data, and only it reads that slice of the
  // peers'), then collects the slices of the others.
  void run_all_reduce(const AllReduceOptions& options) override {
    const std::vector<std::uint64_t> counts = even_slices(options.count, size());
    const Shown peers = publish({options.data});
    const auto slice = [&](const void* base, int index) {
      return static_cast<char*>(const_cast<void*>(base)) + offset_of(counts, index) * size_of(options.dtype);
    };
    reduce_slice(slice(options.data, rank()), offset_of(counts, rank()), counts[static_cast<std::size_t>(rank())],
                 options.dtype, options.reduce, [&](int peer) { return peers(peer, 0); });
    synchronise();
    for (int peer = 0; peer < size(); ++peer) {
      copy(slice(options.data, peer), slice(peers(peer, 0), peer), counts[static_cast<std::size_t>(peer)],
           options.dtype);
    }
    synchronise();
  }

  void run_broadcast(const BroadcastOptions& options) override {
    const Shown peers = publish({options.data});
    copy(options.data, peers(options.root, 0), options.count, options.dtype);
    synchronise();
  }

  void run_send(const SendOptions& options) override {
    GroupState::Mailbox& box = mailbox(rank(), options.peer);
    std::unique_lock lock(state_->mutex);
    box.data = options.data;
    box.call = current_call().identity;
    const std::uint64_t mine = ++box.posted;
    state_->changed.notify_all();
    await(lock, {options.peer}, [&](int) { return box.taken >= mine; });
  }

  void run_recv(const RecvOptions& options) override {
    GroupState::Mailbox& box = mailbox(options.peer, rank());
    std::unique_lock lock(state_->mutex);
    await(lock, {options.peer}, [&](int) { return box.posted > box.taken; });
    const void* source = box.data;
    const CollectiveIdentity sent = box.call;
    lock.unlock();
    if (compares() && !calls_match(sent, current_call().identity)) refuse_message(sent);
    copy(options.data, source, options.count, options.dtype);
    lock.lock();
    ++box.taken;
    state_->changed.notify_all();
  }

  // Nothing of the others may be used before this has compared their calls.
  void run_barrier() override {
    publish({});
    synchronise();
  }

 private:
  GroupState::Mailbox& mailbox(int sender, int receiver) {
    return state_->mailboxes[static_cast<std::size_t>(sender * size() + receiver)];
  }

  // Shows `pointers` to the others, waits until everybody has done so, and returns what everybody shows.
  Shown publish(std::vector<const void*> pointers) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->shown.pointers[static_cast<std::size_t>(rank())] = std::move(pointers);
      state_->shown.calls[static_cast<std::size_t>(rank())] = current_call().identity;
    }
    const std::int64_t before = times_waits() ? monotonic_ns() : 0;
    synchronise();
    if (times_waits()) add_waited(monotonic_ns() - before);
    Shown all;
    {
      const std::lock_guard lock(state_->mutex);
      all = state_->shown;
    }
    if (compares()) {
      for (const CollectiveIdentity& call : all.calls) {
        if (!calls_match(call, current_call().identity)) refuse_mismatch(all.calls);
      }
    }
    return all;
  }

  void synchronise() {
    std::unique_lock lock(state_->mutex);
    const std::uint64_t mine = ++state_->steps[static_cast<std::size_t>(rank())];
    state_->changed.notify_all();
    std::vector<int> everybody;
    for (int member = 0; member < size(); ++member) everybody.push_back(member);
    await(lock, everybody, [&](int member) { return state_->steps[static_cast<std::size_t>(member)] >= mine; });
  }

  // Waits until ready(member) holds for each of `members`; names those for which it does not when the time is up.
  template <typename Ready>
  void await(std::unique_lock<std::mutex>& lock, const std::vector<int>& members, Ready ready) {
    const auto all_ready = [&] {
      for (const int member : members) {
        if (!ready(member)) return false;
      }
      return true;
    };
    const auto limit = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                              std::chrono::duration<double>(options_.timeout_seconds));
    if (state_->changed.wait_until(lock, limit, all_ready)) return;
    std::vector<int> missing;
    for (const int member : members) {
      if (!ready(member)) missing.push_back(member);
    }
    // The explanation of a stall may take a while, and others wait for the mutex.
    lock.unlock();
    stall(missing, options_.timeout_seconds);
  }

  void copy(void* destination, const void* source, std::uint64_t count, DType dtype) {
    const std::size_t element = size_of(dtype);
    for (std::uint64_t done = 0; done < count; done += options_.max_chunk_elements) {
      const std::uint64_t now = std::min(options_.max_chunk_elements, count - done);
      copy_bytes(static_cast<char*>(destination) + done * element, static_cast<const char*>(source) + done * element,
                 now * element);
    }
  }

  template <typename InputOf>
  void reduce_slice(void* output, std::uint64_t offset, std::uint64_t count, DType dtype, ReduceOp op,
                    InputOf input_of) {
    const std::size_t element = size_of(dtype);
    std::vector<const void*> sources(static_cast<std::size_t>(size()));
    for (std::uint64_t done = 0; done < count; done += options_.max_chunk_elements) {
      for (int peer = 0; peer < size(); ++peer) {
        sources[static_cast<std::size_t>(peer)] = static_cast<const char*>(input_of(peer)) + (offset + done) * element;
      }
      reduce(dtype, op, static_cast<char*>(output) + done * element, sources,
             std::min(options_.max_chunk_elements, count - done));
    }
  }

  std::shared_ptr<GroupState> state_;
  CommunicatorOptions options_;
};

class ThreadsFactory final : public CommunicatorFactory {
 public:
  ThreadsFactory(std::shared_ptr<World> world, int rank, const CommunicatorOptions& options)
      : world_(std::move(world)), rank_(rank), options_(options) {}

  std::unique_ptr<Communicator> create(const Group& group, const CommunicatorHooks& hooks) override {
    std::shared_ptr<GroupState> state;
    {
      const std::lock_guard lock(world_->mutex);
      if (next_ == world_->groups.size()) world_->groups.push_back(std::make_shared<GroupState>(group));
      state = world_->groups[next_++];
    }
    require(state->group == group, fmt::format("threads: rank {} creates {} where another created {}", rank_,
                                               group.name(), state->group.name()));
    const int position = group.position_of(rank_);
    if (position < 0) return nullptr;
    return std::make_unique<ThreadsCommunicator>(std::move(state), position, hooks, options_);
  }

  std::string_view backend() const override { return "threads"; }

 private:
  std::shared_ptr<World> world_;
  int rank_;
  std::size_t next_ = 0;
  CommunicatorOptions options_;
};

}  // namespace

std::vector<std::unique_ptr<CommunicatorFactory>> make_threads_world(int num_ranks,
                                                                     const CommunicatorOptions& options) {
  auto world = std::make_shared<World>();
  std::vector<std::unique_ptr<CommunicatorFactory>> factories;
  for (int rank = 0; rank < num_ranks; ++rank) {
    factories.push_back(std::make_unique<ThreadsFactory>(world, rank, options));
  }
  return factories;
}

}  // namespace tessera
