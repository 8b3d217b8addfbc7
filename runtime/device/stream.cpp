#include "runtime/device/stream.h"

#include "runtime/device/event_state.h"

namespace tessera {

bool Event::query() const {
  return !state_ || state_->query();
}

void Event::synchronize() const {
  if (state_) state_->synchronize();
}

}  // namespace tessera
