// One thread per rank that sees to it that nobody waits for ever.
//
// - It beats the collective log, so that other hosts see a sign of life.
// - A peer whose process ends without a word is reported at once, with the verdict of the logs.
// - A SIGTERM may be a request to stop, or what a launcher sends the survivors of a dead rank before it kills them: the
//   peers are looked at first.
// - A state of the teardown that is overdue ends the rank; so does a job in which nothing moves, where no wait of a
//   communicator notices it.
// It sleeps in between, uses no communicator, and ends a job only through the two callbacks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "parallel/collective_log.h"
#include "parallel/presence.h"
#include "parallel/teardown.h"
#include "runtime/base/error.h"

namespace tessera {

struct WatchdogHooks {
  // How many SIGTERM came so far; and what to do with one that is a request to stop, and with a second one.
  std::function<int()> num_sigterms;
  std::function<void()> stop;
  std::function<void()> end_unsaved;
  // Whether this rank was asked to stop, by whatever signal.
  std::function<bool()> stop_requested = [] { return false; };
  // Asks for the word, once; true: this rank is to say what it found.
  std::function<bool()> claim_word;
  // Says the line where it is not empty, and ends this rank and its job with exit code 4.
  std::function<void(const std::string& line)> end_job;
};

class Watchdog {
 public:
  Watchdog(Presence& presence, Teardown& teardown, WatchdogHooks hooks);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A descriptor (eventfd) that wakes it; for signal handlers.
  int wake_descriptor() const;
  void set_timeout(double seconds);  // collectives.timeout_seconds
  // The log of this rank and where those of all are; nullptr before it goes.
  void watch_log(CollectiveLog* log, const std::string& run_directory);
  // A line to add to what it reports, from how it was found; "": none. Any thread.
  void set_note(std::function<std::string(FoundBy)> note);
  // From now on this rank has an error of its own to say: deaths and signals are no longer news.
  void note_failed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What the logs of all ranks say of a run right now; empty where they cannot be read.
std::string verdict_line(const std::string& run_directory);

}  // namespace tessera
