// Sets the calling thread's treatment of denormals for one scope.
#pragma once

#include "runtime/base/float_environment.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace tessera::test {

class FloatMode {
 public:
  enum Mode { kGradual, kFlushed };

  explicit FloatMode(Mode mode) {
#if defined(__SSE__)
    saved_ = _mm_getcsr();
    _mm_setcsr(0x1F80);
#endif
    if (mode == kFlushed) set_float_environment();
  }
  ~FloatMode() {
#if defined(__SSE__)
    _mm_setcsr(saved_);
#endif
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  unsigned int saved_ = 0;
};

}  // namespace tessera::test
