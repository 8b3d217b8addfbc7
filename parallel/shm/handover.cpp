#include "parallel/shm/handover.h"

#include <fmt/format.h>
#include <mpi.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "parallel/mpi/quiet_wait.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace tessera::shm {
namespace {

// What a rank tells all others by MPI. The name leads to its socket; the secret, which no list of sockets shows, keeps out whoever else
// on the host might send a descriptor to that name.
struct Invitation {
  std::uint64_t name = 0;
  std::uint64_t secret = 0;
  std::uint64_t bytes = 0;  // of the arena
  std::uint64_t ready = 0;  // the socket is there
};

struct Message {
  std::uint64_t secret;  // the receiver's
  std::int32_t sender;   // local rank
};

struct Address {
  explicit Address(std::uint64_t name) {
    unix_address.sun_family = AF_UNIX;
    const std::string text = fmt::format("tessera-{:016x}", name);
    std::memcpy(unix_address.sun_path + 1, text.data(), text.size());  // a leading zero byte makes the name abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  sockaddr_un unix_address{};
  socklen_t length = 0;
};

bool send_descriptor(int socket, const Invitation& to, int sender, int descriptor) {
  Message message{to.secret, sender};
  iovec data{&message, sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  Address address(to.name);
  msghdr header{};
  header.msg_name = &address.unix_address;
  header.msg_namelen = address.length;
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

// Takes one message if there is one; false where there is none.
bool receive_descriptor(int socket, const Invitation& own, std::vector<PeerFile>& files) {
  Message message{};
  iovec data{&message, sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return false;
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return true;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
  Descriptor received(descriptor);
  const bool ours = got == sizeof message && message.secret == own.secret && message.sender >= 0 &&
                    message.sender < static_cast<int>(files.size());
  if (ours) files[static_cast<std::size_t>(message.sender)].file = std::move(received);
  return true;
}

// Sends to everybody and receives from everybody. A full queue at a peer (there are short limits) is no reason to block: what
// arrives here is taken meanwhile, so two ranks never wait for each other. Returns what went wrong, or nothing.
std::string exchange(int socket, const std::vector<Invitation>& locals, int rank, int own, std::vector<PeerFile>& files,
                     double timeout_seconds) {
  const int size = static_cast<int>(locals.size());
  const double deadline = monotonic_seconds() + timeout_seconds;
  int next = 1;  // distance to the peer that is sent to next
  const auto num_here = [&] {
    return std::count_if(files.begin(), files.end(), [](const PeerFile& peer) { return peer.file.get() >= 0; });
  };
  while (next < size || num_here() < size - 1) {
    bool moved = false;
    if (next < size) {
      const int peer = (rank + next) % size;
      if (send_descriptor(socket, locals[static_cast<std::size_t>(peer)], rank, own)) {
        ++next;
        moved = true;
      } else if (errno != EAGAIN && errno != EINTR) {
        return fmt::format("sending to local rank {}: {}", peer, std::strerror(errno));
      }
    }
    moved = receive_descriptor(socket, locals[static_cast<std::size_t>(rank)], files) || moved;
    if (moved) continue;
    if (monotonic_seconds() > deadline) return fmt::format("{} of {} descriptors came", num_here(), size - 1);
    pollfd wait{socket, POLLIN, 0};
    poll(&wait, 1, next < size ? 1 : 100);
  }
  return {};
}

[[noreturn]] void refuse(const std::string& problem) {
  throw CollectiveError("shm: memory files could not be handed over: " + problem,
                        "ranks in containers of their own need collectives.backend: mpi");
}

}  // namespace

std::vector<PeerFile> exchange_files(const HostMap& hosts, const Arena& own, double timeout_seconds) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  const std::vector<int> beside = hosts.ranks_beside(world_rank);
  const auto local_rank = static_cast<int>(std::find(beside.begin(), beside.end(), world_rank) - beside.begin());

  Invitation invitation{.bytes = own.size_bytes()};
  std::string problem;
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::array<std::uint64_t, 2> random{};
  if (getrandom(random.data(), sizeof random, 0) != sizeof random) problem = "no random numbers";
  std::tie(invitation.name, invitation.secret) = std::pair(random[0], random[1]);
  const Address address(invitation.name);
  if (socket.get() < 0 ||
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.unix_address), address.length) != 0) {
    problem = fmt::format("unix socket: {}", std::strerror(errno));
  }
  invitation.ready = problem.empty() ? 1 : 0;
  std::vector<Invitation> all(hosts.host_of_world.size());
  mpi::all_gather_quietly(&invitation, all.data(), sizeof invitation);
  if (!problem.empty()) refuse(problem);

  std::vector<Invitation> locals;
  std::vector<PeerFile> files;
  for (const int rank : beside) {
    locals.push_back(all[static_cast<std::size_t>(rank)]);
    files.push_back({Descriptor(), locals.back().bytes});
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].ready == 0) refuse(fmt::format("world rank {} has no socket", rank));
  }
  problem = exchange(socket.get(), locals, local_rank, own.file().get(), files, timeout_seconds);

  // All ranks fail or none does: otherwise those that are well would go on and wait for the others.
  const std::uint8_t failed = problem.empty() ? 0 : 1;
  std::vector<std::uint8_t> failures(all.size());
  mpi::all_gather_quietly(&failed, failures.data(), sizeof failed);
  if (!problem.empty()) refuse(problem);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank] != 0) refuse(fmt::format("world rank {} failed", rank));
  }
  return files;
}

}  // namespace tessera::shm
