#include "runtime/ops/cpu/current_kernels.h"

#include "runtime/base/error.h"

namespace tessera::ops::cpu {

const Kernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kAvx512Kernels;
  if (isa == Isa::kAvx2) return kAvx2Kernels;
#endif
  require(isa == Isa::kPortable, "kernels exist for this instruction set");
  return kPortableKernels;
}

const Kernels& kernels() {
  return kernels_of(current_isa());
}

}  // namespace tessera::ops::cpu
