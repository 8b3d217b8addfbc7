#include "checkpoint/huggingface_mapping.h"

#include <algorithm>
#include <cctype>
#include <span>

#include "checkpoint/tensor_slice.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

// "*" stands for a block's number.
struct Row {
  std::string_view ours, theirs;
  bool transposed = false;
  int part = 0, num_parts = 1;
};

constexpr Row kGpt2Rows[] = {
    {"embedding.token.weight", "wte.weight"},
    {"embedding.position.weight", "wpe.weight"},
    {"block.*.attention_norm.weight", "h.*.ln_1.weight"},
    {"block.*.attention_norm.bias", "h.*.ln_1.bias"},
    {"block.*.attention.query.weight", "h.*.attn.c_attn.weight", true, 0, 3},
    {"block.*.attention.query.bias", "h.*.attn.c_attn.bias", false, 0, 3},
    {"block.*.attention.key.weight", "h.*.attn.c_attn.weight", true, 1, 3},
    {"block.*.attention.key.bias", "h.*.attn.c_attn.bias", false, 1, 3},
    {"block.*.attention.value.weight", "h.*.attn.c_attn.weight", true, 2, 3},
    {"block.*.attention.value.bias", "h.*.attn.c_attn.bias", false, 2, 3},
    {"block.*.attention.output.weight", "h.*.attn.c_proj.weight", true},
    {"block.*.attention.output.bias", "h.*.attn.c_proj.bias"},
    {"block.*.feed_forward_norm.weight", "h.*.ln_2.weight"},
    {"block.*.feed_forward_norm.bias", "h.*.ln_2.bias"},
    {"block.*.feed_forward.up.weight", "h.*.mlp.c_fc.weight", true},
    {"block.*.feed_forward.up.bias", "h.*.mlp.c_fc.bias"},
    {"block.*.feed_forward.down.weight", "h.*.mlp.c_proj.weight", true},
    {"block.*.feed_forward.down.bias", "h.*.mlp.c_proj.bias"},
    {"final_norm.weight", "ln_f.weight"},
    {"final_norm.bias", "ln_f.bias"},
    {"head.weight", kHuggingFaceHead},
};

// Queries and keys need no permutation: both turn the pair (i, i + head_dim / 2).
constexpr Row kLlamaRows[] = {
    {"embedding.token.weight", "embed_tokens.weight"},
    {"block.*.attention_norm.weight", "layers.*.input_layernorm.weight"},
    {"block.*.attention.query.weight", "layers.*.self_attn.q_proj.weight"},
    {"block.*.attention.query.bias", "layers.*.self_attn.q_proj.bias"},
    {"block.*.attention.key.weight", "layers.*.self_attn.k_proj.weight"},
    {"block.*.attention.key.bias", "layers.*.self_attn.k_proj.bias"},
    {"block.*.attention.value.weight", "layers.*.self_attn.v_proj.weight"},
    {"block.*.attention.value.bias", "layers.*.self_attn.v_proj.bias"},
    {"block.*.attention.output.weight", "layers.*.self_attn.o_proj.weight"},
    {"block.*.attention.output.bias", "layers.*.self_attn.o_proj.bias"},
    {"block.*.feed_forward_norm.weight", "layers.*.post_attention_layernorm.weight"},
    {"block.*.feed_forward.gate.weight", "layers.*.mlp.gate_proj.weight"},
    {"block.*.feed_forward.gate.bias", "layers.*.mlp.gate_proj.bias"},
    {"block.*.feed_forward.up.weight", "layers.*.mlp.up_proj.weight"},
    {"block.*.feed_forward.up.bias", "layers.*.mlp.up_proj.bias"},
    {"block.*.feed_forward.down.weight", "layers.*.mlp.down_proj.weight"},
    {"block.*.feed_forward.down.bias", "layers.*.mlp.down_proj.bias"},
    {"final_norm.weight", "norm.weight"},
    {"head.weight", kHuggingFaceHead},
};

constexpr std::string_view kGpt2Ignorable[] = {"h.*.attn.bias", "h.*.attn.masked_bias"};
constexpr std::string_view kLlamaIgnorable[] = {"rotary_emb.inv_freq", "layers.*.self_attn.rotary_emb.inv_freq"};

std::span<const Row> rows_of(HuggingFaceLayout layout) {
  return layout == HuggingFaceLayout::kGpt2 ? std::span<const Row>(kGpt2Rows) : std::span<const Row>(kLlamaRows);
}

std::span<const std::string_view> ignorable_of(HuggingFaceLayout layout) {
  return layout == HuggingFaceLayout::kGpt2 ? std::span<const std::string_view>(kGpt2Ignorable)
                                            : std::span<const std::string_view>(kLlamaIgnorable);
}

std::string_view prefix_of(HuggingFaceLayout layout) {
  return layout == HuggingFaceLayout::kGpt2 ? "transformer." : "model.";
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Whether `name` is of the pattern; number: what stands for its star.
bool matches(std::string_view pattern, std::string_view name, std::string_view& number) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return false;
  number = name.substr(before.size(), name.size() - before.size() - after.size());
  return is_number(number);
}

std::string fill(std::string_view pattern, std::string_view number) {
  std::string name(pattern);
  if (const std::size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, number);
  return name;
}

}  // namespace

Extents HuggingFacePlace::tensor_shape() const {
  Extents theirs = shape;
  theirs[0] *= num_parts;  // our outputs come first
  if (transposed) std::ranges::reverse(theirs);
  return theirs;
}

std::vector<HuggingFacePlace> huggingface_places(HuggingFaceLayout layout,
                                                 const std::vector<ParameterSpec>& parameters) {
  std::vector<HuggingFacePlace> places;
  for (const ParameterSpec& parameter : parameters) {
    std::string_view number;
    const auto rows = rows_of(layout);
    const auto row =
        std::ranges::find_if(rows, [&](const Row& each) { return matches(each.ours, parameter.name, number); });
    require(row != rows.end(), parameter.name + " has a place in the layout");
    places.push_back({.parameter = parameter.name,
                      .tensor = fill(row->theirs, number),
                      .shape = extents_of(parameter.shape),
                      .transposed = row->transposed,
                      .part = row->part,
                      .num_parts = row->num_parts});
  }
  return places;
}

std::string bare_name(HuggingFaceLayout layout, const std::string& tensor) {
  const std::string_view prefix = prefix_of(layout);
  return tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : tensor;
}

std::string full_name(HuggingFaceLayout layout, const std::string& bare) {
  return bare == kHuggingFaceHead ? bare : std::string(prefix_of(layout)) + bare;
}

bool is_ignorable(HuggingFaceLayout layout, std::string_view bare) {
  std::string_view number;
  return std::ranges::any_of(ignorable_of(layout),
                             [&](std::string_view pattern) { return matches(pattern, bare, number); });
}

}  // namespace tessera
