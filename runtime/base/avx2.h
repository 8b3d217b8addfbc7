// Some integer and exact loops of this folder are compiled twice, for the baseline and for AVX2. Their results cannot
// differ, so the choice is not part of the numerics record.
#pragma once

namespace tessera {

inline bool has_avx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace tessera
