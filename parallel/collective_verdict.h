// What went wrong in a run, read off the collective logs of its ranks. A pure function: clocks, processes and files were
// asked before (collective_evidence.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/collective_evidence.h"

namespace tessera {

enum class Outcome : std::uint8_t {
  kOk,        // ended well, or running with nothing wrong
  kMismatch,  // members of a group made different calls
  kFailed,    // a rank ended with an error of its own
  kMissing,   // a rank died, fell silent, or its log is not there
  kStalled,   // ranks wait, and the one they wait for lives (or nobody noticed anything but a wait)
};
std::string_view name_of(Outcome outcome);

enum class RankState : std::uint8_t {
  kRunning,
  kStopped,  // by a signal or a debugger
  kSilent,   // its process cannot be probed from here, and its heartbeat is old
  kDied,     // the process is gone and did not say how it ended
  kEnded,    // well, or because somebody asked it to stop
  kFailed,
  kFollowed,  // ended with the error of another rank, as all ranks agreed
  kNoLog,     // no log that can be read
};
std::string_view name_of(RankState state);

// One call and where it was made.
struct NamedCall {
  std::string group, channel;
  CollectiveIdentity identity;  // root and peer are world ranks, unless:
  bool by_group_rank = false;   // no log tells the world ranks
  // "all_gather block.3 forward, step 7, 1024 fp32 (call 17 of dp:0/gather)".
  std::string text() const;
};

// Ranks are world ranks, ascending, unless said otherwise.
struct Divergence {
  std::string group, channel;
  std::uint64_t sequence = 0;
  // The difference is older than what the logs still hold; `sequence` is the oldest call that was compared.
  bool before = false;
  bool by_group_rank = false;  // see NamedCall
  // Ranks that say the same, most ranks first. fields: where they differ from the first side (the first: from the second).
  struct Side {
    std::vector<int> ranks;
    CollectiveIdentity identity;
    std::vector<std::string> fields;
  };
  std::vector<Side> sides;
  // What the calls around it suggest: "rank 1 left out one call"; may be empty.
  std::string hint;
  std::int64_t unix_ns = 0;  // when the first of these calls was enqueued
};

// One call that some members are in and wait.
struct Wait {
  NamedCall call;
  std::vector<int> waiting;
  std::vector<int> absent;     // members that have not started it; none: all are in it
  int num_unknown_absent = 0;  // absent members of which no log tells the world rank
  std::int64_t since_ns = 0;   // Unix time
  double seconds = 0;          // until now, or until the last sign of life of the ranks that wait
  bool long_enough = false;    // to count as a stall
};

struct RankReport {
  int world_rank = 0;
  RankState state = RankState::kNoLog;
  std::string host, message;  // message: of a rank that failed, or why there is no log
  std::int64_t pid = 0;
  int exit_code = 0;
  int ended_with = -1;  // of kFollowed: the rank whose error it was
  std::int64_t step = 0;
  std::uint64_t num_calls = 0;
  double silent_seconds = 0;  // since its last sign of life
  std::optional<NamedCall> last_finished;
  std::vector<NamedCall> pending;  // started, not finished
  // Over the calls that all members' logs hold: how long peers waited for it where it came last, and how long it waited for
  // others; and in how many calls it came last.
  double blamed_seconds = 0, waiting_seconds = 0;
  std::uint64_t num_last = 0;
  std::uint64_t num_damaged = 0;
};

struct JudgeOptions {
  double stall_seconds = 30;  // a wait of a running job that is no longer than this is ordinary; 0: every wait counts
  // A rank whose process cannot be probed and whose last sign of life is older is silent. Never 0: a thread of each rank
  // writes a heartbeat some times a second, but other hosts see it only when their file system shows it.
  // A rank without a log is given as long from the creation of the newest log on.
  double silence_seconds = 120;
};

struct Verdict {
  Outcome outcome = Outcome::kOk;
  int world_size = 0;
  std::vector<int> culprits;            // where it began, as far as the logs tell; may be empty
  std::vector<int> cycle;               // ranks that wait for each other, each for the next, the last for the first
  std::vector<Divergence> divergences;  // earliest first, one per communicator or pair
  std::vector<Wait> waits;              // longest first
  std::vector<RankReport> ranks;        // all of the world
  std::vector<UnreadableLog> unreadable;
  std::vector<std::string> ignored;
  std::uint64_t num_compared = 0;  // calls of all ranks that were compared
  std::uint64_t num_timed = 0;     // calls that entered the waiting times
  double waiting_seconds = 0;      // of all ranks
  bool starting = false;           // ranks without a log may still be about to create it
  bool several_hosts = false;      // waiting times across hosts then carry the skew of their clocks

  // False where line() only says how far a run is that has nothing wrong with it.
  bool trouble() const { return outcome != Outcome::kOk; }
  // One line of at most kMaxVerdictLine bytes, for error messages: what, where, who.
  std::string line() const;
  // The whole story, for people; ends in a newline.
  std::string text() const;
};
inline constexpr std::size_t kMaxVerdictLine = 300;

// Divergence: within a communicator (group and channel) the smallest sequence number at which fingerprints differ; send
// and recv are paired by (communicator, sender, receiver, sequence). Among communicators the one whose call was enqueued
// first. Missing or stalled: from ranks that wait to those they wait for, until one that waits for nobody.
Verdict judge(const Evidence& evidence, const JudgeOptions& options = {});

}  // namespace tessera
