#!/usr/bin/env python3
"""Makes the small Hugging Face models of tests/train/huggingface_test once, with the logits that transformers computes for them.

    tools/make_huggingface_reference.py [FOLDER]        default: tests/data/huggingface beside this script's folder

Needs torch and transformers. What it writes is committed; it runs again only when a case is added. Weights are random and far larger than an
initialised model's, so that a matrix in the wrong place or the wrong way round is seen in the logits. Each model is saved by transformers itself
and loaded back from what was saved, so that logits are those of the rounded weights of the bf16 and f16 cases; they are computed in float64.

Per case a folder: what save_pretrained writes, logits.json (the tokens, and the versions that made them) and logits.f32 ([tokens, vocabulary],
fp32, little endian).
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

GPT2 = dict(n_layer=2, n_head=3, n_embd=24, n_positions=16, vocab_size=61, bos_token_id=60, eos_token_id=60)
LLAMA = dict(num_hidden_layers=2, num_attention_heads=3, hidden_size=24, intermediate_size=40, max_position_embeddings=32,
             vocab_size=61, bos_token_id=1, eos_token_id=2)

# name, class, config, dtype that is saved, largest shard
CASES = [
    ("gpt2", GPT2LMHeadModel, GPT2Config(**GPT2), torch.float32, "5GB"),
    ("gpt2_untied", GPT2LMHeadModel, GPT2Config(**dict(GPT2, n_layer=1, n_inner=40, activation_function="relu",
                                                       tie_word_embeddings=False, layer_norm_epsilon=1e-3)),
     torch.float32, "5GB"),
    # Two query heads to a kv head, heads wider than hidden_size / num_attention_heads, several files.
    ("llama", LlamaForCausalLM, LlamaConfig(**dict(LLAMA, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                                                   rms_norm_eps=1e-5)), torch.float32, "16KB"),
    # Of the four frequencies one is kept, one blended and two are stretched: 32 / 2 pi = 5.09, 1.61, 0.509 and 0.161 turns.
    ("llama3", LlamaForCausalLM, LlamaConfig(**dict(
        LLAMA, tie_word_embeddings=True, rope_theta=100.0, rope_scaling=dict(
            rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
        max_position_embeddings=128)), torch.bfloat16, "5GB"),
    ("llama_linear", LlamaForCausalLM, LlamaConfig(**dict(
        LLAMA, num_hidden_layers=1, attention_bias=True, mlp_bias=True, hidden_act="gelu",
        rope_theta=500.0, rope_scaling=dict(rope_type="linear", factor=2.0))), torch.float16, "5GB"),
]


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.randn(parameter.shape, generator=generator) / 4
            parameter.copy_(values + 1 if parameter.dim() == 1 and parameter.mean() == 1 else values)


def make_case(folder, name, model_class, config, dtype, max_shard_size, seed):
    model = model_class(config)
    randomise(model, seed)
    model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
    model = model_class.from_pretrained(folder, dtype=torch.float64).eval()
    length = min(16, config.max_position_embeddings)
    tokens = torch.randint(0, config.vocab_size, (1, length), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(tokens).logits[0]
    (folder / "logits.f32").write_bytes(logits.numpy().astype("<f4").tobytes())
    (folder / "logits.json").write_text(json.dumps(dict(
        made_by=f"tools/make_huggingface_reference.py, transformers {transformers.__version__}, torch {torch.__version__}, float64",
        tokens=tokens[0].tolist())) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, logits up to {logits.abs().max():.2f}, {size} bytes")


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "huggingface"
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    for seed, (name, model_class, config, dtype, max_shard_size) in enumerate(CASES, start=1):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        make_case(folder, name, model_class, config, dtype, max_shard_size, seed)


if __name__ == "__main__":
    main()
