// What stands behind an Event; each backend has its own.
#pragma once

#include <memory>

#include "runtime/device/stream.h"

namespace tessera {

struct Event::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  virtual ~State() = default;
  virtual bool query() const = 0;
  virtual void synchronize() const = 0;
  // The point that the same stream has reached by now: an event recorded at this moment. Valid, and complete, after the
  // stream is gone, so that a buffer can be given back later than the streams that used it.
  virtual Event refreshed() const = 0;
};

}  // namespace tessera
