// For benches: what the matrix library reaches when it is called plainly. Not used by training.
#pragma once

#include <cstdint>

namespace tessera::ops {

// c[m, n] = op(a) · op(b) in one call of the library on `threads` of its own threads; a is [m, k] ([k, m] where
// transpose_a), b is [k, n] ([n, k] where transpose_b), all dense, row-major fp32. The baseline of `tessera bench
// gemm`. The library's threads may spin for a moment after the call: time other things only after a pause.
void library_matmul(int threads, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                    const float* a, const float* b, float* c);

}  // namespace tessera::ops
