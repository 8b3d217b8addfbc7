// Instruction sets of our own loops and of oneDNN, chosen at run time.
//
// Our loops compute on logical vectors of 16 fp32 lanes on every instruction set, with multiplication and addition
// rounded apart, so their bits are the same everywhere; only oneDNN's products depend on the instruction set.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class Isa : std::uint8_t { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };  // ordered: lower runs wherever higher runs

Isa detect_isa();                   // the best this processor runs
std::string_view name_of(Isa isa);  // "portable", "avx2", "avx512"

// What the kernels and oneDNN use from now on; at most detect_isa(). Call before the first operator (oneDNN freezes its
// choice at first use: throws DeviceError if that is too late). Without a call: detect_isa().
void set_isa(Isa isa);
Isa current_isa();

// "oneDNN 2.6.3".
std::string_view matmul_library();

}  // namespace tessera
