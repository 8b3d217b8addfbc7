// Optimizer updates and sums over sources: as fast as memory gives.
#pragma once

#include "runtime/ops/cpu/kernels.h"
#include "runtime/ops/cpu/lanes.h"

namespace tessera::ops::cpu::TESSERA_ISA {

inline void adamw(const AdamWRange& a) {
  for_blocks(a.n, [&](std::int64_t i, std::int64_t count) {
    const Vec g = load_block(a.gradient + i, count) * a.gradient_scale;
    const Vec m = load_block(a.m + i, count) * a.beta1 + g * a.one_minus_beta1;
    const Vec v = load_block(a.v + i, count) * a.beta2 + (g * g) * a.one_minus_beta2;
    const Vec old = load_block(a.parameter + i, count);
    const Vec step = (m * a.step_size) / (square_root(v) * a.denominator_scale + a.eps);
    store_block(a.m + i, count, m);
    store_block(a.v + i, count, v);
    store_block(a.parameter + i, count, (old - old * a.decay) - step);
  });
}

// Adds `width` sources that start at `first`, neighbours level by level: the subtree over the largest power of two
// below `width` plus the rest, which is the same tree as pairing neighbours with an odd last one passing up.
template <typename Load>
TESSERA_INLINE Vec tree_of_two_or_four(std::int64_t width, Load at) {
  switch (width) {
    case 1: return at(0);
    case 2: return at(0) + at(1);
    case 3: return (at(0) + at(1)) + at(2);
    default: return (at(0) + at(1)) + (at(2) + at(3));
  }
}

// Any number of sources, block by block: a small stack of partial sums, one per level of the tree.
inline Vec tree_of_many(const float* const* sources, std::int64_t num_sources, std::int64_t i, std::int64_t count) {
  Vec pending[64];
  int depth = 0;
  for (std::int64_t k = 0; k < num_sources; ++k) {
    Vec value = load_block(sources[k] + i, count);
    // As many levels are complete as k + 1 has trailing zeros.
    for (std::int64_t bit = k + 1; bit % 2 == 0; bit /= 2) value = pending[--depth] + value;
    pending[depth++] = value;
  }
  // What is left are subtrees of falling size; an odd last one passes up until it meets its neighbour.
  Vec total = pending[--depth];
  while (depth > 0) total = pending[--depth] + total;
  return total;
}

template <int kSources>
TESSERA_INLINE void tree_sum_of(float* destination, const float* const* sources, std::int64_t n) {
  const float* s[kSources];
  for (int k = 0; k < kSources; ++k) s[k] = sources[k];
  for_blocks(n, [&](std::int64_t i, std::int64_t count) {
    store_block(destination + i, count,
                tree_of_two_or_four(kSources, [&](int k) { return load_block(s[k] + i, count); }));
  });
}

inline void tree_sum(float* destination, const float* const* sources, std::int64_t num_sources, std::int64_t n) {
  switch (num_sources) {
    case 1: return tree_sum_of<1>(destination, sources, n);
    case 2: return tree_sum_of<2>(destination, sources, n);
    case 3: return tree_sum_of<3>(destination, sources, n);
    case 4: return tree_sum_of<4>(destination, sources, n);
    default:
      for_blocks(n, [&](std::int64_t i, std::int64_t count) {
        store_block(destination + i, count, tree_of_many(sources, num_sources, i, count));
      });
  }
}

}  // namespace tessera::ops::cpu::TESSERA_ISA
