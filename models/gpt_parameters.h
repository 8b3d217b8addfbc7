// The parameters of each segment by name, and the one place that knows their order.
#pragma once

#include <functional>
#include <span>

#include "models/gpt_shape.h"
#include "runtime/base/error.h"
#include "runtime/device/tensor_view.h"

namespace tessera {

// Parameters, or their gradients: the same structs serve both. Views that the config leaves out are empty.
struct NormViews {
  TensorView gain, bias;  // [H]
};
struct LinearViews {
  TensorView weight, bias;  // [out, in], [out]
};
struct EmbeddingViews {
  TensorView token, position;  // [V, H], [S, H]
};
struct BlockViews {
  NormViews attention_norm;
  LinearViews query, key, value, output;
  NormViews feed_forward_norm;
  LinearViews gate, up, down;
};
struct HeadViews {
  NormViews final_norm;
  TensorView weight;  // [V, H]
};

enum class ParameterRole : std::uint8_t { kMatrix, kResidualProjection, kGain, kBias };

// Calls visit for each parameter that the shape has, in the order of gpt.h. name: what follows "block.L." in a block,
// the whole name elsewhere (the head's matrix is called head.weight here, tied or not).
using VisitParameter = std::function<void(TensorView& view, const char* name, const Shape& shape, ParameterRole role)>;
void visit_parameters(const GptShape& shape, EmbeddingViews& views, const VisitParameter& visit);
void visit_parameters(const GptShape& shape, BlockViews& views, const VisitParameter& visit);
void visit_parameters(const GptShape& shape, HeadViews& views, const VisitParameter& visit);

// Names a segment's views. InternalError where their number or a size is not the table's.
template <typename Views>
Views bind_parameters(const GptShape& shape, std::span<const TensorView> views) {
  Views bound;
  std::size_t next = 0;
  visit_parameters(shape, bound, [&](TensorView& view, const char* name, const Shape& expected, ParameterRole) {
    require(next < views.size() && views[next].num_elements() == expected.num_elements(), name);
    view = TensorView(views[next++].data, expected);
  });
  require(next == views.size(), "a segment was given more parameters than its table has");
  return bound;
}

}  // namespace tessera
