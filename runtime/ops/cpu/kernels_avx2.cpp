// The kernels on 2 x 8 lanes. Compiled with the flags of its instruction set (see CMakeLists.txt).
#if defined(__x86_64__)
#define TESSERA_ISA avx2
#define TESSERA_NATIVE_BYTES 32
#include "runtime/ops/cpu/kernel_table.h"

namespace tessera::ops::cpu {
const Kernels kAvx2Kernels = avx2::make_kernels();
}  // namespace tessera::ops::cpu
#endif
