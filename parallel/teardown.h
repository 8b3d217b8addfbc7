// The way out of a job: states in a fixed order, each with a deadline, so that no rank waits for ever.
//
//   running → streams → peers → barrier → communicators → mpi → gone
//
// The trainer walks to `communicators`, whoever owns MPI to `gone`; the watchdog ends a rank whose state is overdue.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

namespace tessera {

enum class TeardownState : std::uint32_t { kRunning, kStreams, kPeers, kBarrier, kCommunicators, kMpi, kGone };

// One state, and what still exists while a rank is in it.
struct TeardownRow {
  TeardownState state;
  std::string_view name;    // "streams"
  std::string_view wanted;  // what ends the state, for a message: "its streams to finish"
  std::string_view exists;
  // How long it may last: collectives.timeout_seconds, and no longer than this. 0: that alone, since peers may still be at work.
  double limit_seconds;
};
std::span<const TeardownRow> teardown_rows();
const TeardownRow& row_of(TeardownState state);

struct TeardownTransition {
  TeardownState from, to;
  std::string_view when;
};
// Every transition there is.
std::span<const TeardownTransition> teardown_transitions();

// Where one rank is. Thread-safe: one thread walks, the watchdog looks.
class Teardown {
 public:
  // on_enter: told of every new state, after it counts: shows it to the peers, and lets tests fail in it.
  explicit Teardown(std::function<void(TeardownState)> on_enter = {}) : on_enter_(std::move(on_enter)) {}

  // InternalError where the table has no such transition.
  void enter(TeardownState next);
  bool may_enter(TeardownState next) const;
  TeardownState state() const;

  void set_timeout(double seconds);  // collectives.timeout_seconds
  struct Overdue {
    TeardownState state;
    double limit_seconds;
  };
  // The present state where its deadline has passed. now_ns: monotonic.
  std::optional<Overdue> overdue(std::int64_t now_ns) const;

 private:
  std::function<void(TeardownState)> on_enter_;
  mutable std::mutex mutex_;
  TeardownState state_ = TeardownState::kRunning;
  std::int64_t since_ns_ = 0;
  double timeout_seconds_ = 600;
};

}  // namespace tessera
