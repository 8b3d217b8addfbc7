#!/usr/bin/env python3
"""Exports a checkpoint, loads it with transformers, and compares logits with Tessera's own.

    tools/compare_with_transformers.py CHECKPOINT [--tessera PROGRAM] [--tokens 1,2,3] [--tolerance 1e-5]

CHECKPOINT is a run, an import or a step's folder. Needs torch and transformers. transformers computes in float64; tokens are, unless given, as many as
the model takes, at most 64, from a fixed seed. Prints the largest difference; exit code 1 where it is above the tolerance, or where transformers found
weights missing, unexpected or left over.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM


def run(arguments):
    return subprocess.run([str(argument) for argument in arguments], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    default = pathlib.Path(__file__).resolve().parent.parent / "build" / "cpu-release" / "tessera"
    parser.add_argument("--tessera", default=default)
    parser.add_argument("--tokens")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        exported = pathlib.Path(folder) / "exported"
        run([options.tessera, "checkpoint", "export", options.checkpoint, exported])
        model, report = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float64, output_loading_info=True)
        left_over = {key: value for key, value in report.items() if value}
        config = model.config
        length = min(64, config.max_position_embeddings)
        tokens = torch.randint(0, config.vocab_size, (length,), generator=torch.Generator().manual_seed(1)).tolist()
        if options.tokens:
            tokens = [int(token) for token in options.tokens.split(",")]
        with torch.no_grad():
            theirs = model.eval()(torch.tensor([tokens])).logits[0]

    ours = torch.tensor(
        json.loads(run([options.tessera, "checkpoint", "logits", options.checkpoint, "--tokens", ",".join(map(str, tokens))])),
        dtype=torch.float64)
    difference = (ours - theirs).abs().max().item()
    good = difference <= options.tolerance and not left_over
    print(f"{options.checkpoint}: {config.model_type}, {len(tokens)} tokens, logits up to {theirs.abs().max().item():.3f}, "
          f"largest difference {difference:.2e}: {'ok' if good else 'NOT within ' + str(options.tolerance)}")
    if left_over:
        print(f"transformers reports {left_over}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
