#include "runtime/ops/isa.h"

#include <fmt/format.h>

#include <atomic>

#include "runtime/base/error.h"
#include "runtime/ops/cpu/matmul_library.h"

namespace tessera {
namespace {

constexpr int kUnset = -1;

// What set_isa() chose for this process. Numerics belong to the whole process, as oneDNN's own choice does.
std::atomic<int>& chosen_isa() {
  static std::atomic<int> chosen{kUnset};
  return chosen;
}

Isa detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

}  // namespace

Isa detect_isa() {
  static const Isa kDetected = detect();
  return kDetected;
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
  }
  return "unknown";
}

Isa current_isa() {
  const int chosen = chosen_isa().load(std::memory_order_relaxed);
  return chosen == kUnset ? detect_isa() : static_cast<Isa>(chosen);
}

void set_isa(Isa isa) {
  if (isa > detect_isa()) {
    throw DeviceError(
        fmt::format("device: instruction set {} asked, this processor has {}", name_of(isa), name_of(detect_isa())));
  }
  if (isa == current_isa()) return;
  if (!ops::cpu::cap_matmul_library(isa)) {
    throw DeviceError(fmt::format("device: instruction set {} asked, but {} already runs {}", name_of(isa),
                                  matmul_library(), name_of(current_isa())),
                      "call set_isa before the first operator");
  }
  chosen_isa().store(static_cast<int>(isa), std::memory_order_relaxed);
}

std::string_view matmul_library() {
  return ops::cpu::matmul_library_name();
}

}  // namespace tessera
