#include "parallel/presence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "parallel/process_state.h"
#include "runtime/base/error.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // Linux 5.3; older C libraries do not name it
#endif

namespace tessera {

// Shared between processes: lock-free, and its layout never changes within a job.
struct Presence::Page {
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> failed_code;
  std::atomic<std::uint32_t> spoke;
};

namespace {

constexpr std::size_t kPageBytes = 4096;
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "a lock would live in one process only");

void* map(int file, int protection) {
  void* data = ::mmap(nullptr, kPageBytes, protection, MAP_SHARED, file, 0);
  return data == MAP_FAILED ? nullptr : data;
}

// Opens the page of a peer by its descriptor; nullptr where that is not allowed or the peer is gone.
void* map_peer(std::int64_t pid, int file) {
  const int descriptor = ::open(fmt::format("/proc/{}/fd/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  void* data = map(descriptor, PROT_READ);
  ::close(descriptor);
  return data;
}

}  // namespace

struct Presence::Peer {
  int world_rank = 0;
  LogOwner owner;  // host, pid, start, domain
  bool visible = false;
  int process = -1;            // a pidfd; -1: probed at every look
  const Page* page = nullptr;  // nullptr: not to be had
  bool gone = false;
};

Presence::Presence(int world_rank, const std::function<std::vector<std::string>(const std::string&)>& all_gather)
    : world_rank_(world_rank) {
  const LogOwner mine = LogOwner::this_process();
  file_ = ::memfd_create("tessera-presence", MFD_CLOEXEC);
  if (file_ >= 0 && ::ftruncate(file_, kPageBytes) == 0) own_ = static_cast<Page*>(map(file_, PROT_READ | PROT_WRITE));
  const std::vector<std::string> texts = all_gather(fmt::format(
      "{} {} {} {} {}", mine.pid, mine.process_start, mine.pid_domain, own_ != nullptr ? file_ : -1, mine.host));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (static_cast<int>(rank) == world_rank) continue;
    Peer peer;
    peer.world_rank = static_cast<int>(rank);
    int file = -1;
    std::istringstream text(texts[rank]);
    text >> peer.owner.pid >> peer.owner.process_start >> peer.owner.pid_domain >> file >> peer.owner.host;
    require(!text.fail(), "presence: unreadable: " + texts[rank]);
    peer.visible = mine.pid_domain != 0 && peer.owner.pid_domain == mine.pid_domain;
    if (peer.visible) {
      peer.process = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(peer.owner.pid), 0));
      // After opening: the pid may have become somebody else's.
      peer.gone = probe(peer.owner) == Liveness::kDead;
      if (file >= 0) peer.page = static_cast<const Page*>(map_peer(peer.owner.pid, file));
    }
    peers_.push_back(std::move(peer));
  }
}

Presence::~Presence() {
  for (const Peer& peer : peers_) {
    if (peer.process >= 0) ::close(peer.process);
    if (peer.page != nullptr) ::munmap(const_cast<Page*>(peer.page), kPageBytes);
  }
  if (own_ != nullptr) ::munmap(own_, kPageBytes);
  if (file_ >= 0) ::close(file_);
}

void Presence::show(TeardownState state) {
  if (own_ != nullptr) own_->state.store(static_cast<std::uint32_t>(state));
}

void Presence::show_failed(int exit_code) {
  if (own_ != nullptr) own_->failed_code.store(exit_code);
}

void Presence::show_spoke() {
  if (own_ != nullptr) own_->spoke.store(1);
}

std::vector<PeerSigns> Presence::peers() const {
  std::vector<PeerSigns> signs;
  signs.reserve(peers_.size());
  for (const Peer& peer : peers_) {
    PeerSigns& sign = signs.emplace_back(PeerSigns{.world_rank = peer.world_rank,
                                                   .host = peer.owner.host,
                                                   .pid = peer.owner.pid,
                                                   .visible = peer.visible && peer.page != nullptr});
    if (!sign.visible) continue;
    // Before the page: what the page of a process says that is gone is its last word.
    sign.gone = peer.gone || (peer.process < 0 && probe(peer.owner) == Liveness::kDead);
    sign.state = static_cast<TeardownState>(peer.page->state.load());
    sign.failed_code = peer.page->failed_code.load();
    sign.spoke = peer.page->spoke.load() != 0;
  }
  return signs;
}

Liveness Presence::liveness(int world_rank) const {
  for (const Peer& peer : peers_) {
    if (peer.world_rank == world_rank) return peer.gone ? Liveness::kDead : probe(peer.owner);
  }
  return Liveness::kUnknown;
}

void Presence::wait(int descriptor, int milliseconds) {
  std::vector<pollfd> entries{{descriptor, POLLIN, 0}};
  std::vector<Peer*> watched;
  for (Peer& peer : peers_) {
    if (peer.process < 0 || peer.gone) continue;
    entries.push_back({peer.process, POLLIN, 0});
    watched.push_back(&peer);
  }
  if (::poll(entries.data(), entries.size(), milliseconds) <= 0) return;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (entries[i + 1].revents != 0) watched[i]->gone = true;
  }
}

}  // namespace tessera
