#!/usr/bin/env python3
"""One sharding option at a time around the defaults: tokens per second, predicted and measured peaks, and one state_hash for all.

    tools/fsdp_sweep.py build/cpu-release/tessera --ranks 2 4 > sweep.md

Trains GPT-2 124M (or --config) on random tokens with seq_len 64 and a global batch of four sequences, each option --runs times, and prints a
Markdown table. Speed is the median over the runs of a run's median step, without tracing; a share of the machine that others use shows in it.
Exit code 1 where the state_hash of one numerics record differs between two options.
"""

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

OPTIONS = [
    ("defaults", []),
    ("strategy shard_grad_op", ["fsdp.strategy=shard_grad_op"]),
    ("strategy hybrid_shard, groups of 2", ["fsdp.strategy=hybrid_shard", "fsdp.shard_size=2"]),
    ("strategy no_shard", ["fsdp.strategy=no_shard"]),
    ("wrap root", ["fsdp.wrap=root"]),
    ("wrap 2", ["fsdp.wrap=2"]),
    ("wrap 4", ["fsdp.wrap=4"]),
    ("backward_prefetch backward_post", ["fsdp.backward_prefetch=backward_post"]),
    ("backward_prefetch none", ["fsdp.backward_prefetch=none"]),
    ("forward_prefetch_depth 0", ["fsdp.forward_prefetch_depth=0"]),
    ("forward_prefetch_depth 2", ["fsdp.forward_prefetch_depth=2"]),
    ("max_inflight_all_gathers 1", ["fsdp.max_inflight_all_gathers=1"]),
    ("depth 4, max_inflight_all_gathers 5", ["fsdp.forward_prefetch_depth=4", "fsdp.max_inflight_all_gathers=5"]),
    ("reshard_after_forward false", ["fsdp.reshard_after_forward=false"]),
    ("reduce every_micro_batch", ["fsdp.reduce=every_micro_batch"]),
]


def write_tokens(path, count, vocab_size):
    generator = random.Random(1)
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{count}H", *(generator.randrange(vocab_size) for _ in range(count))))


def run_once(arguments, options, ranks, scratch):
    run = os.path.join(scratch, f"run-{len(os.listdir(scratch))}")
    sets = ["data.train=[%s]" % os.path.join(scratch, "tokens.bin"), "data.validation=[]", "run.evaluate_every=0", "run.sample_every=0",
            f"run.steps={arguments.steps}", "run.log_every=1", f"run.hash_every={arguments.steps}", "model.seq_len=64",
            "batch.global_batch_size=4", "batch.micro_batch_size=1", "reproducibility.lanes=4", "device.threads=1", "schedule.name=constant",
            "schedule.warmup_steps=0", *options]
    command = [arguments.mpirun, "--quiet", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), arguments.tessera, "train",
               arguments.config, "--run-dir", run]
    for each in sets:
        command += ["--set", each]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexit {result.returncode}\n{result.stderr}")
    steps = [event for event in map(json.loads, open(os.path.join(run, "metrics.jsonl"))) if "kind" not in event]
    plan = json.load(open(os.path.join(run, "plan.json")))
    warm = steps[1:]
    return {
        "tokens_per_second": statistics.median(step["tokens_per_second"] for step in warm),
        "measured": max(step["memory_allocated_peak"] for step in warm),
        "reserved": max(step["memory_reserved_peak"] for step in warm),
        "predicted": plan["predicted_bytes"],
        "hash": steps[-1]["state_hash"],
        "calls": plan["calls"],
    }


def mib(value):
    return f"{value / 2**20:,.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--config", default=os.path.join(os.path.dirname(__file__), "..", "configs", "gpt2-124m.yaml"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--only", help="options whose name contains this, beside the defaults")
    arguments = parser.parse_args()
    hashes = set()
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        write_tokens(os.path.join(scratch, "tokens.bin"), 64 * 4 * (arguments.steps + 1) + 1, 50257)
        for ranks in arguments.ranks:
            print(f"\n{ranks} ranks\n")
            print("| option | gathers / scatters per step | tokens/s | ÷ defaults | allocated peak, MiB | predicted | error | reserved peak, MiB |")
            print("|---|---|---|---|---|---|---|---|")
            chosen = {name: options for name, options in OPTIONS if not arguments.only or arguments.only in name or name == "defaults"}
            # Round by round, so that what else the machine does in some minutes falls on all options alike.
            results = {name: [] for name in chosen}
            for _ in range(arguments.runs):
                for name, options in chosen.items():
                    results[name].append(run_once(arguments, options, ranks, scratch))
            base = statistics.median(run["tokens_per_second"] for run in results["defaults"])
            for name, runs in results.items():
                hashes |= {run["hash"] for run in runs}
                speed = statistics.median(run["tokens_per_second"] for run in runs)
                measured = max(run["measured"] for run in runs)
                error = runs[0]["predicted"] / measured - 1
                worst = max(worst, abs(error))
                calls = runs[0]["calls"]
                print(f"| {name} | {calls['all_gather']} / {calls['reduce_scatter']} | {speed:,.0f} | {speed / base:.2f} | {mib(measured)} "
                      f"| {mib(runs[0]['predicted'])} | {100 * error:+.2f} % | {mib(max(run['reserved'] for run in runs))} |", flush=True)
    print(f"\nLargest error of a prediction: {100 * worst:.2f} %. state_hash after step {arguments.steps}: {', '.join(sorted(hashes))}.")
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
