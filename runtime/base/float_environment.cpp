#include "runtime/base/float_environment.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace tessera {

void set_float_environment() {
#if defined(__SSE__)
  constexpr unsigned int kAllExceptionsMasked = 0x1F80;
  constexpr unsigned int kFlushToZero = 0x8000;
  constexpr unsigned int kDenormalsAreZero = 0x0040;
  // The rounding field (0x6000) stays 0: round to nearest, ties to even.
  _mm_setcsr(kAllExceptionsMasked | kFlushToZero | kDenormalsAreZero);
#endif
}

}  // namespace tessera
