// Rounding and denormal mode are part of the numerics: round to nearest, denormals flushed (inputs and results), on
// every thread.
#pragma once

namespace tessera {

// Sets the calling thread's mode. Called by every thread the runtime starts and by main.
void set_float_environment();

}  // namespace tessera
