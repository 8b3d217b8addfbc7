// Puts the times of ranks on one clock. Ranks of one clock domain (runtime/base/clock.h) read the same CLOCK_MONOTONIC and
// need nothing; of every other domain one rank asks the reference rank for its time, as NTP does.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/communicator.h"

namespace tessera {

// What to add to this rank's CLOCK_MONOTONIC to get the reference rank's: true to ± uncertainty at the moment it was found.
struct ClockOffset {
  std::int64_t offset_ns = 0, uncertainty_ns = 0;
  friend bool operator==(const ClockOffset&, const ClockOffset&) = default;
};

// One question: when it was asked and answered by the asker's clock, and what the other clock said in between.
struct ClockExchange {
  std::int64_t asked_ns = 0, other_ns = 0, answered_ns = 0;
};

// The other clock was read somewhere between question and answer: its offset is the middle of what that allows, and half the
// round trip the uncertainty. Of several exchanges the shortest says most.
ClockOffset best_offset(std::span<const ClockExchange> exchanges);

// The offset of this rank to the member `reference` of `world` (a position). Every member calls it, while the stream is idle.
// domain: clock_domain(), 0 for a clock that may be this rank's alone. Two collectives, and per domain but the reference's
// kClockExchanges round trips; the first member of a domain asks.
inline constexpr int kClockExchanges = 16;
ClockOffset align_clocks(Communicator& world, StreamView stream, int reference, std::uint64_t domain);

}  // namespace tessera
