#include "parallel/mpi/quiet_wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "parallel/mpi/mpi_handle.h"
#include "runtime/base/spin.h"

namespace tessera::mpi {

void wait_quietly(MPI_Request request) {
  const auto done = [&] {
    int flag = 0;
    check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  };
  auto sleep = std::chrono::microseconds(10);
  while (!spin_until(done)) {
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, std::chrono::microseconds(200));
  }
}

void all_gather_quietly(const void* own, void* all, std::size_t bytes) {
  const int count = static_cast<int>(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(own, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD, &request), "MPI_Iallgather");
  wait_quietly(request);
}

}  // namespace tessera::mpi
