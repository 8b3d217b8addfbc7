// When an attempt that ended is followed by another, and after how long. Pure.
#pragma once

#include <chrono>
#include <string>

namespace tessera {

// Whether the next start may end otherwise: after a lost or silent rank (4), an mpirun that failed (4), an internal error (70). Not where the job
// was done (0) or asked to stop (75, 130), nor where the same would come again: usage and config (2), data (3), a checkpoint (5), device, memory
// or disk (6), non-finite training (7), and calls of ranks that do not belong together (4 with a mismatch).
bool may_start_again(int exit_code, bool mismatch);

// What a code says by itself, for "attempt 1 of 3 ended: …".
std::string meaning_of(int exit_code);

// Before the next attempt: none after one that saved something, then 1, 2, 4 … 30 s.
std::chrono::seconds pause_before_next(int attempts_without_progress);

}  // namespace tessera
