// What stands around the work of one rank: whatever happens, it is said once, nobody hangs, and mpirun gets the right code.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "launcher/mpi_session.h"
#include "parallel/collective_log.h"
#include "parallel/presence.h"
#include "parallel/teardown.h"
#include "parallel/watchdog.h"

namespace tessera {

class RankGuard {
 public:
  // Collective. From here on a watchdog looks after this rank, until run() returns. on_teardown: told of each state (tests).
  explicit RankGuard(MpiSession& session, std::function<void(TeardownState)> on_teardown = {});
  ~RankGuard();
  RankGuard(const RankGuard&) = delete;
  RankGuard& operator=(const RankGuard&) = delete;

  // Runs body on this rank, ends the session and returns the exit code.
  // - body returns: MPI is finalised.
  // - AgreedError (every rank has it): printed by its rank alone; all finalise and return its code.
  // - anything else: if all ranks failed within the grace the lowest prints and all finalise; otherwise this rank prints
  // and aborts the job. An error of a collective call always aborts: its transfers may not have ended.
  int run(const std::function<ExitCode()>& body);

  // Ends the job at once for an error of this rank while its streams and communicators still stand: to take them down first would be to wait
  // for peers. Says it once, then aborts with its code.
  [[noreturn]] void fail(const std::exception_ptr& error);

  Teardown& teardown() { return teardown_; }
  // What collectives.timeout_seconds is, once that is known; then the log and the directory it lies in, nullptr before it goes.
  void set_timeout(double seconds);
  void watch_log(CollectiveLog* log, const std::string& run_directory);
  void set_note(std::function<std::string(FoundBy)> note) { watchdog_.set_note(std::move(note)); }

 private:
  ErrorInfo note(const std::exception_ptr& error);
  int leave(ExitCode code);
  [[noreturn]] void end_job(const ErrorInfo& mine, const std::optional<MpiSession::FoundError>& found);
  bool claim_word();
  bool peer_has_a_cause() const;

  MpiSession& session_;
  Presence presence_;
  Teardown teardown_;
  Watchdog watchdog_;
};

// A guard around body alone.
int run_rank(MpiSession& session, const std::function<ExitCode()>& body);

}  // namespace tessera
