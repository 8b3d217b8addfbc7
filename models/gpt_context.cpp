#include "models/gpt_context.h"

namespace tessera {

GptContext::GptContext(const ModelConfig& model, const LossConfig& loss_config, std::int64_t micro_batch_size,
                       StreamView compute)
    : shape(gpt_shape(model, micro_batch_size)), stream(compute) {
  loss.ignore_index = static_cast<std::int32_t>(loss_config.ignore_index);
  loss.label_smoothing = static_cast<float>(loss_config.label_smoothing);
  loss.z_loss = static_cast<float>(loss_config.z_loss);
  if (!shape.rope) return;
  rope_cos = scratch({shape.seq, shape.head_dim / 2});
  rope_sin = scratch({shape.seq, shape.head_dim / 2});
  ops::make_rope_tables(shape.seq, shape.head_dim, shape.rope_frequencies, rope_cos.view().as<float>(),
                        rope_sin.view().as<float>());
}

}  // namespace tessera
