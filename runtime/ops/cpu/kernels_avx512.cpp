// The kernels on 1 x 16 lanes. Compiled with the flags of its instruction set (see CMakeLists.txt).
#if defined(__x86_64__)
#define TESSERA_ISA avx512
#define TESSERA_NATIVE_BYTES 64
#include "runtime/ops/cpu/kernel_table.h"

namespace tessera::ops::cpu {
const Kernels kAvx512Kernels = avx512::make_kernels();
}  // namespace tessera::ops::cpu
#endif
