#include "parallel/shm/handover.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace tessera::shm {
namespace {

// Drawn by rank 0 and told to the others by MPI. The name keeps jobs apart; the secret, which no list of sockets shows,
// keeps out whoever else on the host might send a descriptor to that name.
struct Nonce {
  std::uint64_t name = 0;
  std::uint64_t secret = 0;
};

struct Message {
  std::uint64_t secret;
  std::int32_t rank;
};

sockaddr_un address_of(std::uint64_t name, int rank, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = fmt::format("tessera-{:016x}-{}", name, rank);
  std::memcpy(address.sun_path + 1, text.data(), text.size());  // a leading zero byte makes the name abstract
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

bool send_descriptor(int socket, const Nonce& nonce, int from, int to, int descriptor) {
  Message message{nonce.secret, from};
  iovec data{&message, sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  sockaddr_un address = address_of(nonce.name, to, header.msg_namelen);
  header.msg_name = &address;
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
bool receive_descriptor(int socket, const Nonce& nonce, std::vector<Descriptor>& all) {
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
  const bool ours = got == sizeof message && message.secret == nonce.secret && message.rank >= 0 &&
                    message.rank < static_cast<int>(all.size());
  if (ours) all[static_cast<std::size_t>(message.rank)] = std::move(received);
  return true;
}

// Sends to everybody and receives from everybody. A full queue at a peer (there are short limits) is no reason to
// block: what arrives here is taken meanwhile, so two ranks never wait for each other. Returns what went wrong, or
// nothing.
std::string exchange(int socket, const Nonce& nonce, int rank, int own, std::vector<Descriptor>& all,
                     double timeout_seconds) {
  const int size = static_cast<int>(all.size());
  const double deadline = monotonic_seconds() + timeout_seconds;
  int next = 1;  // distance to the peer that is sent to next
  const auto missing = [&] {
    int count = 0;
    for (const Descriptor& descriptor : all) count += descriptor.get() < 0 ? 1 : 0;
    return count;
  };
  while (next < size || missing() > 0) {
    bool moved = false;
    if (next < size) {
      if (send_descriptor(socket, nonce, rank, (rank + next) % size, own)) {
        ++next;
        moved = true;
      } else if (errno != EAGAIN && errno != EINTR) {
        return fmt::format("sending to local rank {}: {}", (rank + next) % size, std::strerror(errno));
      }
    }
    moved = receive_descriptor(socket, nonce, all) || moved;
    if (moved) continue;
    if (monotonic_seconds() > deadline) return fmt::format("{} of {} descriptors did not come", missing(), size);
    pollfd wait{socket, POLLIN, 0};
    poll(&wait, 1, next < size ? 1 : 100);
  }
  return {};
}

// All ranks fail or none does: otherwise those that are well would wait for the other.
void agree(MPI_Comm host, const std::string& problem) {
  int failed = problem.empty() ? 0 : 1;
  int any = 0;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, host);
  if (any == 0) return;
  throw CollectiveError(
      "shm: descriptors could not be handed over: " + (problem.empty() ? "another rank failed" : problem),
      "ranks in containers of their own need collectives.backend: mpi");
}

}  // namespace

std::vector<Descriptor> exchange_descriptors(MPI_Comm host, const Descriptor& own, double timeout_seconds) {
  int rank = 0, size = 0;
  MPI_Comm_rank(host, &rank);
  MPI_Comm_size(host, &size);
  std::vector<Descriptor> all(static_cast<std::size_t>(size));
  all[static_cast<std::size_t>(rank)] = Descriptor(fcntl(own.get(), F_DUPFD_CLOEXEC, 0));

  Nonce nonce;
  if (rank == 0 && getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
    nonce.name = static_cast<std::uint64_t>(monotonic_ns());
  MPI_Bcast(&nonce, sizeof nonce, MPI_BYTE, 0, host);

  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_un address = address_of(nonce.name, rank, length);
  std::string problem;
  if (socket.get() < 0 || bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    problem = fmt::format("unix socket: {}", std::strerror(errno));
  }
  agree(host, problem);  // also: every name is bound before the first message
  agree(host, exchange(socket.get(), nonce, rank, own.get(), all, timeout_seconds));
  return all;
}

}  // namespace tessera::shm
