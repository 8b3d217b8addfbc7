#include "parallel/teardown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using enum TeardownState;

constexpr std::array kRows = {
    TeardownRow{kRunning, "running", "", "everything", 0},
    TeardownRow{kStreams, "streams", "its streams to finish",
                "everything; the host thread starts nothing more, and calls that are queued still run", 0},
    TeardownRow{kPeers, "peers", "every rank to finish",
                "everything; this rank's streams are empty, a peer may still read its memory", 0},
    TeardownRow{kBarrier, "barrier", "every rank to know that all are finished",
                "everything; nobody reads anybody's memory any longer", 10},
    TeardownRow{kCommunicators, "communicators", "its communicators to be taken down",
                "the collective log is ended; streams go, then communicators in reverse canonical order, the log, the "
                "lock of the run directory, and the factory with the memory that ranks share",
                10},
    TeardownRow{kMpi, "mpi", "MPI_Finalize to return", "MPI alone", 20},
    TeardownRow{kGone, "gone", "the process to end", "a process that has nothing left to do", 10},
};

constexpr std::array kTransitions = {
    TeardownTransition{kRunning, kStreams,
                       "the job is done, was stopped, or ends with an error that all ranks agreed on"},
    TeardownTransition{kStreams, kPeers, "all streams of this rank are empty"},
    TeardownTransition{kPeers, kBarrier, "every rank said so of its own"},
    TeardownTransition{kBarrier, kCommunicators, "every rank has heard every rank"},
    TeardownTransition{kCommunicators, kMpi, "communicators, streams and log are gone"},
    TeardownTransition{kRunning, kMpi,
                       "no job was begun, or every rank failed and said so before anything was taken down"},
    TeardownTransition{kMpi, kGone, "MPI_Finalize returned"},
};

}  // namespace

std::span<const TeardownRow> teardown_rows() {
  return kRows;
}

std::span<const TeardownTransition> teardown_transitions() {
  return kTransitions;
}

const TeardownRow& row_of(TeardownState state) {
  const auto row = std::ranges::find(kRows, state, &TeardownRow::state);
  require(row != kRows.end(), "teardown: unknown state");
  return *row;
}

bool Teardown::may_enter(TeardownState next) const {
  const TeardownState from = state();
  return std::ranges::any_of(kTransitions, [&](const TeardownTransition& t) { return t.from == from && t.to == next; });
}

void Teardown::enter(TeardownState next) {
  require(may_enter(next), fmt::format("teardown: from {} to {}", row_of(state()).name, row_of(next).name));
  {
    const std::lock_guard lock(mutex_);
    state_ = next;
    since_ns_ = monotonic_ns();
  }
  if (on_enter_) on_enter_(next);
}

TeardownState Teardown::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Teardown::set_timeout(double seconds) {
  const std::lock_guard lock(mutex_);
  timeout_seconds_ = seconds;
}

std::optional<Teardown::Overdue> Teardown::overdue(std::int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  if (state_ == kRunning) return std::nullopt;
  double limit = row_of(state_).limit_seconds;
  if (limit == 0) {
    // A wait of its own that times out says more, and comes first.
    limit = timeout_seconds_ + std::clamp(timeout_seconds_ / 4, 1.0, 30.0);
  } else {
    limit = std::min(limit, timeout_seconds_);
  }
  if (static_cast<double>(now_ns - since_ns_) * 1e-9 < limit) return std::nullopt;
  return Overdue{state_, limit};
}

}  // namespace tessera
