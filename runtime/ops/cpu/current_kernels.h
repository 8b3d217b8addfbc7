// The kernels of the instruction set in use.
#pragma once

#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/isa.h"

namespace tessera::ops::cpu {

// InternalError for an instruction set this build does not have.
const Kernels& kernels_of(Isa isa);
const Kernels& kernels();

}  // namespace tessera::ops::cpu
