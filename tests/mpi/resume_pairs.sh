#!/usr/bin/env bash
# Stop on one cluster, go on with another: trains a model to a saved step in one layout, goes on for ten more steps in another, as processes, and
# compares every loss, gradient norm and state_hash with those of one rank that was never stopped. A line per pair; exits 1 at the end where one differed.
#
#   resume_pairs.sh TESSERA MPIRUN MODEL(t|w) PAIR…      PAIR: LAYOUT:LAYOUT, LAYOUT: ranks/strategy/wrap
#   resume_pairs.sh TESSERA MPIRUN t all                 every layout of 1, 2, 4 ranks × strategy × block, root with one of every number of ranks
set -uo pipefail
[[ $# -ge 4 ]] || { sed -n '5,6p' "$0" >&2; exit 2; }
tessera=$1 mpirun=$2 model=$3
shift 3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

vocab=64 shape="num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64" batch="global_batch_size: 8, micro_batch_size: 2" saved=3
if [[ $model == w ]]; then
  vocab=4099 shape="num_layers: 2, num_heads: 12, hidden_size: 768, intermediate_size: 3072, seq_len: 128, vocab_size: 4099"
  batch="global_batch_size: 16, micro_batch_size: 4" saved=1
fi
last=$((saved + 10))
# Ids that look random enough: a multiplicative generator, little-endian u16.
awk -v n=4001 -v v="$vocab" 'BEGIN { x = 12345; for (i = 0; i < n; ++i) { x = (x * 16807) % 2147483647; t = x % v; printf "\\x%02x\\x%02x", t % 256, int(t / 256) } }' > "$scratch/escapes"
printf "$(cat "$scratch/escapes")" > "$scratch/tokens.bin"
cat > "$scratch/job.yaml" <<YAML
run: {name: pairs, steps: $last, hash_every: 1}
model: {$shape}
data: {train: [$scratch/tokens.bin]}
batch: {$batch}
checkpoint: {every: $saved}
optimizer: {learning_rate: 1e-3}
reproducibility: {lanes: 4}
YAML

if [[ $1 == all ]]; then
  set --
  for ranks in 1 2 4; do for strategy in full_shard shard_grad_op hybrid_shard no_shard; do for wrap in block root; do
    [[ $ranks$strategy == 1hybrid_shard ]] && continue
    for to in 1/no_shard/root 2/full_shard/block 4/hybrid_shard/root 4/shard_grad_op/block; do
      set -- "$@" "$ranks/$strategy/$wrap:$to" "$to:$ranks/$strategy/$wrap"
    done
  done; done; done
fi

train() {  # LAYOUT RUN_DIR STEPS
  local ranks strategy wrap
  IFS=/ read -r ranks strategy wrap <<< "$1"
  "$mpirun" --quiet --oversubscribe --bind-to none -n "$ranks" "$tessera" train "$scratch/job.yaml" --run-dir "$2" --set "run.steps=$3" \
    --set "fsdp.strategy=$strategy" --set "fsdp.wrap=$wrap" --set device.threads=1 > "$scratch/output" 2>&1
}
numbers() {  # of a run: step, loss, max_loss, grad_norm, state_hash
  sed -n -E 's/.*"step":([0-9]+).*"loss":([^,]+),"max_loss":([^,]+),.*"grad_norm":([^,]+),.*"state_hash":("[0-9a-f]+").*/\1 \2 \3 \4 \5/p' "$1/metrics.jsonl"
}

train 1/full_shard/block "$scratch/whole" "$last" || { cat "$scratch/output"; exit 1; }
numbers "$scratch/whole" > "$scratch/expected"
[[ $(wc -l < "$scratch/expected") -eq $last ]] || { echo "FAIL: the undisturbed run has no $last steps"; exit 1; }
failed=0
for pair in "$@"; do
  rm -rf "$scratch/run"
  train "${pair%%:*}" "$scratch/run" "$saved" && train "${pair##*:}" "$scratch/run" "$last"
  code=$?
  if [[ $code -eq 0 ]] && grep -q "^resumed step $saved, .*certificate ok$" "$scratch/output" && numbers "$scratch/run" | cmp -s - "$scratch/expected"; then
    echo "ok    $pair: step $saved and 10 more"
  else
    failed=$((failed + 1)); echo "FAIL  $pair (exit $code)"
    numbers "$scratch/run" | diff "$scratch/expected" - | head -n 6; tail -n 5 "$scratch/output"
  fi
done
[[ $failed -eq 0 ]]
