// The table of one instruction set: the last thing a kernels_*.cpp includes.
#pragma once

#include "runtime/ops/cpu/body_activation.h"
#include "runtime/ops/cpu/body_attention.h"
#include "runtime/ops/cpu/body_cross_entropy.h"
#include "runtime/ops/cpu/body_norm.h"
#include "runtime/ops/cpu/body_optimizer.h"
#include "runtime/ops/cpu/body_pack.h"
#include "runtime/ops/cpu/kernels.h"

namespace tessera::ops::cpu::TESSERA_ISA {

constexpr Kernels make_kernels() {
  return {
      .activation_forward = {activation_forward<Gelu, false>, activation_forward<GeluTanh, false>,
                             activation_forward<Relu, false>, activation_forward<Silu, false>,
                             activation_forward<Silu, true>, activation_forward<Gelu, true>},
      .activation_backward = {activation_backward<Gelu, false>, activation_backward<GeluTanh, false>,
                              activation_backward<Relu, false>, activation_backward<Silu, false>,
                              activation_backward<Silu, true>, activation_backward<Gelu, true>},
      .add = add,
      .scale = scale,
      .norm_forward = {norm_forward<true>, norm_forward<false>},
      .norm_apply = {norm_apply<true>, norm_apply<false>},
      .norm_backward = {norm_backward<true>, norm_backward<false>},
      .column_sums = column_sums,
      .cross_entropy_row = cross_entropy_row,
      .adamw = adamw,
      .tree_sum = tree_sum,
      .pack = pack,
      .pack_transposed = pack_transposed,
      .softmax_block = softmax_block,
      .softmax_backward_block = softmax_backward_block,
      .dot = dot,
      .rope_row = rope_row,
  };
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
