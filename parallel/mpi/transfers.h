// A set of point-to-point messages under way, waited for together without burning a core.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace tessera::mpi {

// One message moves at most this many bytes: MPI counts are int, and a wait should see progress.
inline constexpr std::uint64_t kMessageBytes = std::uint64_t{64} << 20;

class Transfers {
 public:
  explicit Transfers(MPI_Comm comm) : comm_(comm) {}
  ~Transfers();  // gives up what is still under way: an exception is
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // bytes <= kMessageBytes. The tag tells kinds of calls apart, so that different calls do not pair up in silence.
  void send(int peer, const void* data, std::uint64_t bytes, int tag);
  void recv(int peer, void* data, std::uint64_t bytes, int tag);

  // Waits until all are done. Returns the peers of those that are not when nothing has moved for `seconds`; these are given up.
  std::vector<int> wait(double seconds);

 private:
  struct Message {
    int peer;
    bool receives;
  };
  void give_up() noexcept;

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // beside requests_
};

}  // namespace tessera::mpi
