#!/usr/bin/env bash
# Change the cluster, keep the bits: trains one model in many layouts, as processes, and compares every loss, gradient norm and state_hash
# line with those of one rank. Prints a line per layout; exits 1 at the end where one differed.
#
#   promise.sh TESSERA MPIRUN MODEL(t|w) STEPS LAYOUT…        LAYOUT: ranks:threads:wrap:backend[:hosts2][:STRATEGY[=SHARD_SIZE]]
#   promise.sh TESSERA MPIRUN t 20 all                        every layout of 1, 2, 4 ranks × 1, 2 threads × block, root × shm, mpi, two hosts
#   promise.sh TESSERA MPIRUN t 20 strategies                 the other strategies on 2, 4 ranks × block, root × shm, mpi, two hosts
set -uo pipefail
[[ $# -ge 5 ]] || { sed -n '5,7p' "$0" >&2; exit 2; }
tessera=$1 mpirun=$2 model=$3 steps=$4
shift 4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

vocab=64 shape="num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64" batch="global_batch_size: 8, micro_batch_size: 2"
if [[ $model == w ]]; then
  vocab=4099 shape="num_layers: 2, num_heads: 12, hidden_size: 768, intermediate_size: 3072, seq_len: 128, vocab_size: 4099"
  batch="global_batch_size: 16, micro_batch_size: 4"
fi
# Ids that look random enough: a multiplicative generator, little-endian u16.
awk -v n=4001 -v v="$vocab" 'BEGIN { x = 12345; for (i = 0; i < n; ++i) { x = (x * 16807) % 2147483647; t = x % v; printf "\\x%02x\\x%02x", t % 256, int(t / 256) } }' > "$scratch/escapes"
printf "$(cat "$scratch/escapes")" > "$scratch/tokens.bin"
cat > "$scratch/job.yaml" <<YAML
run: {name: promise, steps: $steps, hash_every: 1}
model: {$shape}
data: {train: [$scratch/tokens.bin]}
batch: {$batch}
optimizer: {learning_rate: 1e-3}
reproducibility: {lanes: 4}
YAML

numbers() {  # of a run: step, loss, max_loss, grad_norm, state_hash
  sed -n -E 's/.*"step":([0-9]+).*"loss":([^,]+),"max_loss":([^,]+),.*"grad_norm":([^,]+),.*"state_hash":("[0-9a-f]+").*/\1 \2 \3 \4 \5/p; s/.*"kind":"start".*"state_hash":("[0-9a-f]+").*/start \1/p' "$1/metrics.jsonl"
}

if [[ $1 == all ]]; then
  set --
  for ranks in 1 2 4; do for threads in 1 2; do for wrap in block root; do
    set -- "$@" "$ranks:$threads:$wrap:shm" "$ranks:$threads:$wrap:mpi"
    [[ $ranks -gt 1 ]] && set -- "$@" "$ranks:$threads:$wrap:auto:hosts2"
  done; done; done
fi

if [[ $1 == strategies ]]; then
  set --
  for ranks in 2 4; do for wrap in block root; do for strategy in shard_grad_op hybrid_shard hybrid_shard=1 hybrid_shard=2 no_shard; do
    set -- "$@" "$ranks:1:$wrap:shm:$strategy" "$ranks:1:$wrap:mpi:$strategy" "$ranks:1:$wrap:auto:hosts2:$strategy"
  done; done; done
fi

run() {  # directory ranks threads wrap backend [hosts2] [strategy[=shard_size]]
  local job=("$tessera" train "$scratch/job.yaml" --run-dir "$1" --set "device.threads=$3" --set "fsdp.wrap=$4" --set "collectives.backend=$5")
  local word hosts=
  for word in "${@:6}"; do
    case $word in
      hosts2) hosts=2 ;;
      *=*) job+=(--set "fsdp.strategy=${word%=*}" --set "fsdp.shard_size=${word#*=}") ;;
      *) job+=(--set "fsdp.strategy=$word") ;;
    esac
  done
  if [[ $hosts == 2 ]]; then
    "$here/../support/two_hosts.sh" --per-host "$(($2 / 2))" "$mpirun" --quiet --oversubscribe -n "$2" "${job[@]}"
  else
    "$mpirun" --quiet --oversubscribe --bind-to none -n "$2" "${job[@]}"
  fi
}

run "$scratch/reference" 1 1 block shm > "$scratch/out" 2>&1 || { cat "$scratch/out"; echo "the reference run failed"; exit 1; }
numbers "$scratch/reference" > "$scratch/expected"
[[ $(wc -l < "$scratch/expected") -eq $((steps + 1)) ]] || { echo "expected $((steps + 1)) lines:"; cat "$scratch/expected"; exit 1; }
echo "model $model, $steps steps, 1 rank: $(tail -n 1 "$scratch/expected")"
failed=0 passed=0 skipped=0
for layout in "$@"; do
  IFS=: read -r -a parts <<< "$layout"
  run "$scratch/run" "${parts[@]}" > "$scratch/out" 2>&1
  status=$?
  if [[ $status -eq 77 ]]; then
    echo "skip  $layout: $(tail -n 1 "$scratch/out")"; skipped=$((skipped + 1))
  elif [[ $status -ne 0 ]]; then
    echo "FAIL  $layout: exit $status"; tail -n 5 "$scratch/out"; failed=$((failed + 1))
  elif numbers "$scratch/run" | cmp -s - "$scratch/expected"; then
    echo "equal $layout"; passed=$((passed + 1))
  else
    echo "FAIL  $layout: first difference:"; diff <(numbers "$scratch/run") "$scratch/expected" | head -n 4; failed=$((failed + 1))
  fi
  rm -rf "$scratch/run"
done
echo "$passed equal, $failed failed, $skipped skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
