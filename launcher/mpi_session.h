// The process as an MPI rank, from MPI_Init_thread to MPI_Finalize. Nothing of MPI shows in this header.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/error_path.h"

namespace tessera {

// One per process. All members but the constant ones are collective over the world and are called from one thread.
class MpiSession {
 public:
  // Initialises MPI with MPI_THREAD_MULTIPLE; DeviceError where the library cannot. Names this process in the log.
  MpiSession();
  // Finalises if that is still to be done and nothing is being thrown: with an exception on its way the peers may be
  // anywhere, and MPI_Finalize would wait for them.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& host() const { return host_; }
  // Among the ranks that share memory with this one (one host).
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  void barrier();
  // The text of every rank, by world rank (of the ranks of this host, by local rank).
  std::vector<std::string> all_gather(const std::string& mine);
  std::vector<std::string> all_gather_local(const std::string& mine);

  // Runs one step of the start on every rank. Where it throws on some, all ranks throw the AgreedError of the lowest of
  // them, so that all leave in order. The step itself must not wait for other ranks after a failure of its own.
  void agree(const std::function<void()>& step);

  // After an exception: waits up to `grace` for all other ranks to fail too. The error of the lowest rank if all did
  // (and then all may finalise); nullopt if some did not come: they may be waiting for this rank, and only abort() ends
  // them.
  struct FoundError {
    int rank = 0;
    ErrorInfo error;
    bool may_finalise = true;  // on no rank an error of a collective call, whose transfers MPI may still hold on to
  };
  std::optional<FoundError> agree_after_failure(const ErrorInfo& mine, std::chrono::milliseconds grace);

  // True for the first rank that asks, false for all later ones: of ranks that fail at once, one speaks. "First" is
  // among the ranks of this host, and among all once they share a file. Not collective; any thread.
  bool claim_last_word();
  // A file that all ranks see, exists, and stays as it is.
  void share_last_word(const std::string& path);

  // MPI_Finalize, the last of the five moments of teardown: streams finished, peers finished, barrier passed,
  // communicators gone.
  void finish();
  // Ends every rank of the job with this code, whatever they wait for. Any thread; also while another is in finish().
  [[noreturn]] void abort(ExitCode code);

 private:
  struct State;
  std::unique_ptr<State> state_;
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::string host_;
};

// "Open MPI 4.1.4", and the standard it implements, "3.1". Need no session.
std::string mpi_library();
std::string mpi_standard();
// "OpenPMIx 4.2.2", or "not found". The library need not be linked: whoever starts ranks brings it.
std::string pmix_library();
// The host's name as the system gives it.
std::string host_name();

}  // namespace tessera
