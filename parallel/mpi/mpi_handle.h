// Owners of MPI's objects, and its error codes as errors of ours.
#pragma once

#include <mpi.h>

#include <utility>

namespace tessera::mpi {

// Throws CollectiveError with MPI's own words where code is not MPI_SUCCESS. call: "MPI_Isend".
void check(int code, const char* call);

// Owner of a communicator whose errors are returned, not fatal. The destructor frees it (nothing waits), unless MPI is finalised
// or abandon() was called: transfers that never ended would be freed under MPI's feet.
class CommHandle {
 public:
  CommHandle() = default;
  explicit CommHandle(MPI_Comm comm);
  CommHandle(CommHandle&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  CommHandle& operator=(CommHandle&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~CommHandle();

  MPI_Comm get() const { return comm_; }
  void abandon() { comm_ = MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace tessera::mpi
