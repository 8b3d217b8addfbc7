// Errors that one rank meets and all must leave by: agreed, so that nobody waits for a rank that is gone.
#pragma once

#include <functional>

#include "parallel/communicator.h"

namespace tessera {

// Runs `phase` on every rank, then agrees: where it threw anywhere, every rank throws the AgreedError (trainer.h) of the lowest failing rank.
// `world`: the world group's communicator; `stream`: its stream; placement translates its ranks for the message.
void run_agreed(Communicator& world, StreamView stream, const Placement& placement, const std::function<void()>& phase);

}  // namespace tessera
