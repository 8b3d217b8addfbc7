#include "models/gpt_parameters.h"

namespace tessera {
namespace {

using Role = ParameterRole;

void visit_norm(const GptShape& s, NormViews& views, const char* gain, const char* bias, const VisitParameter& visit) {
  visit(views.gain, gain, {s.hidden}, Role::kGain);
  if (s.norm_bias) visit(views.bias, bias, {s.hidden}, Role::kBias);
}

void visit_linear(const GptShape& s, LinearViews& views, const char* weight, const char* bias, std::int64_t out,
                  std::int64_t in, Role role, const VisitParameter& visit) {
  visit(views.weight, weight, {out, in}, role);
  if (s.bias) visit(views.bias, bias, {out}, Role::kBias);
}

}  // namespace

void visit_parameters(const GptShape& s, EmbeddingViews& views, const VisitParameter& visit) {
  visit(views.token, "embedding.token.weight", {s.vocabulary, s.hidden}, Role::kMatrix);
  if (!s.rope) visit(views.position, "embedding.position.weight", {s.seq, s.hidden}, Role::kMatrix);
}

void visit_parameters(const GptShape& s, BlockViews& views, const VisitParameter& visit) {
  visit_norm(s, views.attention_norm, "attention_norm.weight", "attention_norm.bias", visit);
  visit_linear(s, views.query, "attention.query.weight", "attention.query.bias", s.query_size(), s.hidden,
               Role::kMatrix, visit);
  visit_linear(s, views.key, "attention.key.weight", "attention.key.bias", s.kv_size(), s.hidden, Role::kMatrix, visit);
  visit_linear(s, views.value, "attention.value.weight", "attention.value.bias", s.kv_size(), s.hidden, Role::kMatrix,
               visit);
  visit_linear(s, views.output, "attention.output.weight", "attention.output.bias", s.hidden, s.query_size(),
               Role::kResidualProjection, visit);
  visit_norm(s, views.feed_forward_norm, "feed_forward_norm.weight", "feed_forward_norm.bias", visit);
  if (s.gated())
    visit_linear(s, views.gate, "feed_forward.gate.weight", "feed_forward.gate.bias", s.intermediate, s.hidden,
                 Role::kMatrix, visit);
  visit_linear(s, views.up, "feed_forward.up.weight", "feed_forward.up.bias", s.intermediate, s.hidden, Role::kMatrix,
               visit);
  visit_linear(s, views.down, "feed_forward.down.weight", "feed_forward.down.bias", s.hidden, s.intermediate,
               Role::kResidualProjection, visit);
}

void visit_parameters(const GptShape& s, HeadViews& views, const VisitParameter& visit) {
  visit_norm(s, views.final_norm, "final_norm.weight", "final_norm.bias", visit);
  visit(views.weight, "head.weight", {s.vocabulary, s.hidden}, Role::kMatrix);
}

}  // namespace tessera
