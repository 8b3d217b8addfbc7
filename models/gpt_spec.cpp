#include <fmt/format.h>

#include <cmath>
#include <string>

#include "models/gpt.h"
#include "models/gpt_memory.h"
#include "models/gpt_parameters.h"

namespace tessera {
namespace {

ParameterSpec parameter(const GptShape& s, const std::string& name, const Shape& shape, ParameterRole role) {
  ParameterSpec p{.name = name, .shape = shape};
  switch (role) {
    case ParameterRole::kMatrix: p.init_std = s.init_std; break;
    case ParameterRole::kResidualProjection:
      // 2 num_layers such projections add into the stream: its variance at the end should not grow with depth (GPT-2).
      p.init_std = s.init_std / std::sqrt(2.0 * static_cast<double>(s.layers));
      break;
    case ParameterRole::kGain: p.init = InitKind::kOne; break;
    case ParameterRole::kBias: p.init = InitKind::kZero; break;
  }
  p.decay = shape.rank() == 2;
  return p;
}

// Appends a segment and the parameters that it brings.
template <typename Views>
SegmentSpec& append(ModelSpec& spec, const GptShape& s, const std::string& name, const std::string& prefix) {
  SegmentSpec& segment = spec.segments.emplace_back();
  segment.name = name;
  Views views;
  visit_parameters(s, views, [&](TensorView&, const char* suffix, const Shape& shape, ParameterRole role) {
    if (s.tied && std::string(suffix) == "head.weight") {
      segment.parameters.push_back(0);  // the token table is the first of all
      spec.parameters[0].tied = true;
      return;
    }
    segment.parameters.push_back(static_cast<int>(spec.parameters.size()));
    spec.parameters.push_back(parameter(s, prefix + suffix, shape, role));
  });
  return segment;
}

// Every token meets every element of a segment's matrices once.
std::int64_t product_flops(const ModelSpec& spec, const SegmentSpec& segment, const GptShape& s) {
  std::int64_t elements = 0;
  for (const int index : segment.parameters) {
    const Shape& shape = spec.parameters[static_cast<std::size_t>(index)].shape;
    if (shape.rank() == 2) elements += shape.num_elements();
  }
  return 2 * s.tokens() * elements;
}

// q kᵀ and probabilities · v over the causal half with its diagonal: S(S+1)/2 pairs per head, 2 D multiply-adds each.
std::int64_t attention_flops(const GptShape& s) {
  return 2 * s.batch * s.query_size() * s.seq * (s.seq + 1);
}

}  // namespace

ModelSpec describe_gpt(const ModelConfig& model, std::int64_t micro_batch_size, int num_threads) {
  const GptShape s = gpt_shape(model, micro_batch_size);
  ModelSpec spec;
  spec.constant_bytes = constant_bytes(s);
  set_embedding_memory(s, append<EmbeddingViews>(spec, s, "embedding", ""));
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string name = fmt::format("block.{}", layer);
    SegmentSpec& block = append<BlockViews>(spec, s, name, name + ".");
    set_block_memory(s, num_threads, block);
    block.forward_flops = product_flops(spec, block, s) + attention_flops(s);
  }
  SegmentSpec& head = append<HeadViews>(spec, s, "head", "");
  set_head_memory(s, head);
  head.forward_flops = product_flops(spec, head, s);
  return spec;
}

}  // namespace tessera
