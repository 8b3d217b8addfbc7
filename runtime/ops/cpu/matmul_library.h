// The room of oneDNN: nobody else includes its headers. Releases 2 and 3 both build.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/ops/isa.h"

namespace tessera::ops::cpu {

// "oneDNN 2.6.3".
std::string_view matmul_library_name();

// Caps the library's instruction set; false where it has already made its choice.
bool cap_matmul_library(Isa isa);

// c[m, n] = op(a) · b[k, n], or c += where accumulate; row-major with leading dimensions, on the calling thread alone.
// op(a) is a[m, k], or the transpose of a[k, m]. Callers pass dense panels of fixed form only: other strides may take
// another kernel, with other bits.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  bool transpose_a = false;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  bool accumulate = false;
};
void gemm(const Gemm& args);

}  // namespace tessera::ops::cpu
