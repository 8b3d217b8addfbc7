// The kernels on 4 x 4 lanes: the baseline of every processor.
#define TESSERA_ISA portable
#define TESSERA_NATIVE_BYTES 16
#include "runtime/ops/cpu/kernel_table.h"

namespace tessera::ops::cpu {
const Kernels kPortableKernels = portable::make_kernels();
}  // namespace tessera::ops::cpu
