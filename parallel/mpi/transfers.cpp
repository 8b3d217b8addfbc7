#include "parallel/mpi/transfers.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "parallel/mpi/mpi_handle.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/spin.h"

namespace tessera::mpi {
namespace {

// MPI moves data only while somebody calls it: sleeping longer than this would cost bandwidth on fast networks, shorter would
// cost the processor that ranks share.
constexpr std::int64_t kFirstSleepNs = 10'000;
constexpr std::int64_t kLongestSleepNs = 200'000;

}  // namespace

void Transfers::send(int peer, const void* data, std::uint64_t bytes, int tag) {
  require(bytes <= kMessageBytes, "mpi: message too long");
  requests_.push_back(MPI_REQUEST_NULL);
  messages_.push_back({peer, false});
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &requests_.back()), "MPI_Isend");
}

void Transfers::recv(int peer, void* data, std::uint64_t bytes, int tag) {
  require(bytes <= kMessageBytes, "mpi: message too long");
  requests_.push_back(MPI_REQUEST_NULL);
  messages_.push_back({peer, true});
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &requests_.back()), "MPI_Irecv");
}

std::vector<int> Transfers::wait(double seconds) {
  std::vector<int> finished(requests_.size());
  std::vector<MPI_Status> statuses(requests_.size());
  std::size_t left = requests_.size();
  std::int64_t last_progress = monotonic_ns();
  std::int64_t sleep_ns = kFirstSleepNs;
  const auto progressed = [&] {
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished.data(), statuses.data()),
          "MPI_Testsome");
    if (count == MPI_UNDEFINED) left = 0;
    if (count > 0) left -= static_cast<std::size_t>(count);
    return count > 0 || left == 0;
  };
  while (left > 0) {
    if (spin_until(progressed, kDefaultSpinNs)) {
      last_progress = monotonic_ns();
      sleep_ns = kFirstSleepNs;
      continue;
    }
    if (static_cast<double>(monotonic_ns() - last_progress) > seconds * 1e9) break;
    std::this_thread::sleep_for(std::chrono::nanoseconds(sleep_ns));
    sleep_ns = std::min(2 * sleep_ns, kLongestSleepNs);
  }
  std::vector<int> missing;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL) missing.push_back(messages_[i].peer);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  if (!missing.empty()) give_up();
  requests_.clear();
  messages_.clear();
  return missing;
}

Transfers::~Transfers() {
  give_up();
}

// The run ends after this, by an abort; until then nothing may be written into buffers that their owners believe to be free.
void Transfers::give_up() noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (messages_[i].receives) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

}  // namespace tessera::mpi
