// The CPU's side of every operator: same arguments, already validated and not empty.
#pragma once

#include "runtime/ops/activation.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/embedding.h"
#include "runtime/ops/matmul.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/optimizer_ops.h"

namespace tessera::ops::cpu {

void linear_forward(StreamView stream, const LinearForward& args);
void linear_backward_input(StreamView stream, const LinearBackwardInput& args);
void linear_backward_weight(StreamView stream, const LinearBackwardWeight& args);

void norm_forward(StreamView stream, const NormForward& args);
void norm_recompute(StreamView stream, const NormRecompute& args);
void norm_backward(StreamView stream, const NormBackward& args);

void activation_forward(StreamView stream, const ActivationForward& args);
void activation_backward(StreamView stream, const ActivationBackward& args);
void add(StreamView stream, const Add& args);

void embedding_forward(StreamView stream, const EmbeddingForward& args);
void embedding_backward(StreamView stream, const EmbeddingBackward& args);

void cross_entropy(StreamView stream, const CrossEntropy& args);
void head_loss(StreamView stream, const HeadLoss& args);

void attention_forward(StreamView stream, const AttentionForward& args);
void attention_backward(StreamView stream, const AttentionBackward& args);
void rope(StreamView stream, const Rope& args);

void adamw(StreamView stream, const AdamW& args);
void add_in_place(StreamView stream, std::span<float> destination, std::span<const float> source);
ExactSum exact_sum(StreamView stream, std::span<const float> values, bool squares);

}  // namespace tessera::ops::cpu
