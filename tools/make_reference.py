#!/usr/bin/env python3
"""Makes the reference numbers of tests/models once: logits, losses and every gradient of small GPTs, by PyTorch in float64.

    tools/make_reference.py [FOLDER]        default: tests/data/reference beside this script's folder

Needs numpy and torch. The numbers are committed; this script runs again only when a case is added. It knows nothing of Tessera's
code: the model is written with torch.nn.functional alone (linear, layer_norm, rms_norm, scaled_dot_product_attention,
cross_entropy), rope is a product of complex numbers, and the gradients are autograd's.

Per case two files: NAME.json (model keys as in a job file, tokens, targets, losses, and the list of tensors) and NAME.f32 (the
tensors one after the other, fp32, little endian). Weights are not stored. With
    mix(x): x ^= x >> 30; x *= 0xbf58476d1ce4e5b9; x ^= x >> 27; x *= 0x94d049bb133111eb; x ^= x >> 31     (modulo 2^64)
    u(k, i) = (mix(seed + (k << 32) + i) >> 48) / 32768 - 1
element i of parameter k (in the table's order, the head's matrix last where it is not tied) is u/4 for matrices and biases and
1 + u/4 for gains: multiples of 2^-17 that fp32 holds exactly.

A tied matrix is two leaves of equal value, so that its gradients as lookup table (embedding.token.weight) and as head (head.weight)
come apart.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

IGNORED = -100

DEFAULTS = dict(
    num_layers=2, num_heads=4, num_kv_heads=4, hidden_size=48, head_dim=12, intermediate_size=96, seq_len=13, vocab_size=67,
    norm="layernorm", norm_eps=1e-5, activation="gelu_tanh", positions="learned", rope_theta=10000.0, bias=True,
    tie_word_embeddings=True)
SMALL = dict(num_heads=2, num_kv_heads=2, hidden_size=24, intermediate_size=40)

# name, model keys, batch, loss keys
CASES = [
    ("gpt2", {}, 3, {}),
    ("llama", dict(norm="rmsnorm", norm_eps=1e-6, positions="rope", activation="swiglu", num_kv_heads=2, bias=False,
                   tie_word_embeddings=False, intermediate_size=80), 3, {}),
    ("gelu_untied", dict(SMALL, activation="gelu", tie_word_embeddings=False), 3, {}),
    ("relu_rmsnorm_learned", dict(SMALL, activation="relu", norm="rmsnorm"), 2, dict(ignore_index=0)),
    ("silu_rope_smoothed", dict(SMALL, activation="silu", positions="rope", bias=False, head_dim=8, rope_theta=500.0), 3,
     dict(label_smoothing=0.1, z_loss=0.01)),
    ("geglu_rope_biases", dict(SMALL, activation="geglu", positions="rope", num_heads=6, num_kv_heads=3, head_dim=6), 3, {}),
    # More rows than one chunk of the head, more positions than one block of attention.
    ("long", dict(num_layers=1, num_heads=2, num_kv_heads=1, hidden_size=16, head_dim=8, intermediate_size=24, seq_len=270,
                  norm="rmsnorm", activation="swiglu", positions="rope", bias=False), 2, {}),
]


def mix(x):
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(seed, k, n):
    counters = np.uint64(seed + (k << 32)) + np.arange(n, dtype=np.uint64)
    return (mix(counters) >> np.uint64(48)).astype(np.float64) / 32768.0 - 1.0


def table(m):
    """(name, shape, kind) of every parameter in order."""
    h, i, v = m["hidden_size"], m["intermediate_size"], m["vocab_size"]
    q, kv = m["num_heads"] * m["head_dim"], m["num_kv_heads"] * m["head_dim"]
    rows = []

    def norm(name):
        rows.append((name + ".weight", (h,), "gain"))
        if m["bias"] and m["norm"] == "layernorm":
            rows.append((name + ".bias", (h,), "bias"))

    def linear(name, out, inner):
        rows.append((name + ".weight", (out, inner), "matrix"))
        if m["bias"]:
            rows.append((name + ".bias", (out,), "bias"))

    rows.append(("embedding.token.weight", (v, h), "matrix"))
    if m["positions"] == "learned":
        rows.append(("embedding.position.weight", (m["seq_len"], h), "matrix"))
    for layer in range(m["num_layers"]):
        b = f"block.{layer}."
        norm(b + "attention_norm")
        linear(b + "attention.query", q, h)
        linear(b + "attention.key", kv, h)
        linear(b + "attention.value", kv, h)
        linear(b + "attention.output", h, q)
        norm(b + "feed_forward_norm")
        if m["activation"] in ("swiglu", "geglu"):
            linear(b + "feed_forward.gate", i, h)
        linear(b + "feed_forward.up", i, h)
        linear(b + "feed_forward.down", h, i)
    norm("final_norm")
    if not m["tie_word_embeddings"]:
        rows.append(("head.weight", (v, h), "matrix"))
    return rows


def make_weights(m, seed):
    weights = {}
    for k, (name, shape, kind) in enumerate(table(m)):
        u = uniform(seed, k, int(np.prod(shape))) / 4.0
        weights[name] = torch.tensor((1.0 + u if kind == "gain" else u).reshape(shape), dtype=torch.float64)
    if m["tie_word_embeddings"]:
        weights["head.weight"] = weights["embedding.token.weight"].clone()
    for w in weights.values():
        w.requires_grad_()
    return weights


def rope(x, theta):
    """x [B, heads, S, D]: coordinates (i, i + D/2) as one complex number, times exp(1j * position * theta^(-2i/D))."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), frequency)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


ACTIVATIONS = dict(
    gelu=F.gelu, gelu_tanh=lambda x: F.gelu(x, approximate="tanh"), relu=F.relu, silu=F.silu, swiglu=F.silu, geglu=F.gelu)


def forward(m, w, tokens):
    def norm(name, x):
        shape = (m["hidden_size"],)
        if m["norm"] == "rmsnorm":
            return F.rms_norm(x, shape, w[name + ".weight"], m["norm_eps"])
        return F.layer_norm(x, shape, w[name + ".weight"], w.get(name + ".bias"), m["norm_eps"])

    def linear(name, x):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def heads(x, n):
        return x.unflatten(-1, (n, m["head_dim"])).transpose(1, 2)

    x = F.embedding(tokens, w["embedding.token.weight"])
    if m["positions"] == "learned":
        x = x + w["embedding.position.weight"][: tokens.shape[1]]
    for layer in range(m["num_layers"]):
        b = f"block.{layer}."
        h = norm(b + "attention_norm", x)
        q = heads(linear(b + "attention.query", h), m["num_heads"])
        k = heads(linear(b + "attention.key", h), m["num_kv_heads"])
        v = heads(linear(b + "attention.value", h), m["num_kv_heads"])
        if m["positions"] == "rope":
            q, k = rope(q, m["rope_theta"]), rope(k, m["rope_theta"])
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + linear(b + "attention.output", o.transpose(1, 2).flatten(-2))
        h = norm(b + "feed_forward_norm", x)
        f = ACTIVATIONS[m["activation"]]
        if m["activation"] in ("swiglu", "geglu"):
            a = f(linear(b + "feed_forward.gate", h)) * linear(b + "feed_forward.up", h)
        else:
            a = f(linear(b + "feed_forward.up", h))
        x = x + linear(b + "feed_forward.down", a)
    return F.linear(norm("final_norm", x), w["head.weight"])


def make_case(folder, name, keys, batch, loss_keys, seed):
    m = {**DEFAULTS, **keys}
    if "head_dim" not in keys:
        m["head_dim"] = m["hidden_size"] // m["num_heads"]
    loss_config = {"label_smoothing": 0.0, "z_loss": 0.0, "ignore_index": IGNORED, **loss_keys}
    seq, vocabulary = m["seq_len"], m["vocab_size"]
    numbers = np.random.default_rng(seed).integers(0, vocabulary, size=(batch, seq + 1))
    tokens, targets = numbers[:, :-1].copy(), numbers[:, 1:].copy()
    targets[0, 3] = targets[batch - 1, seq - 1] = targets[1, 5] = loss_config["ignore_index"]

    weights = make_weights(m, seed)
    logits = forward(m, weights, torch.tensor(tokens))
    flat, flat_targets = logits.flatten(0, 1), torch.tensor(targets).flatten()
    losses = F.cross_entropy(flat, flat_targets, ignore_index=loss_config["ignore_index"], reduction="none",
                             label_smoothing=loss_config["label_smoothing"])
    valid = flat_targets != loss_config["ignore_index"]
    losses = torch.where(valid, losses + loss_config["z_loss"] * torch.logsumexp(flat, dim=-1) ** 2, 0.0)
    num_targets = int(valid.sum())
    (losses.sum() / num_targets).backward()
    losses = losses.detach()

    tensors, data, offset = [], [], 0
    for tensor_name, value in [("logits", logits)] + [("gradient " + n, w.grad) for n, w in weights.items()]:
        values = value.detach().numpy().astype("<f4")
        tensors.append(dict(name=tensor_name, shape=list(values.shape), offset=offset))
        data.append(values.tobytes())
        offset += values.size
    description = dict(
        made_by=f"tools/make_reference.py with torch {torch.__version__}, float64", seed=seed, model=m, micro_batch_size=batch,
        loss=loss_config, tokens=tokens.flatten().tolist(), targets=targets.flatten().tolist(), num_targets=num_targets,
        loss_sum=float(losses.sum()), max_loss=float(losses[valid].max()), tensors=tensors)
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in description.items()]
    (folder / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    (folder / f"{name}.f32").write_bytes(b"".join(data))
    print(f"{name}: loss {float(losses.sum()) / num_targets:.6f}, {offset * 4} bytes")


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "reference"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, keys, batch, loss_keys) in enumerate(CASES, start=1):
        make_case(folder, name, keys, batch, loss_keys, seed)


if __name__ == "__main__":
    main()
