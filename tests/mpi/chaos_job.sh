# For the scripts of chaos: a small job, and how to run it with a fault. Sourced; expects $tessera, $mpirun and $scratch.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
support=$(cd "$(dirname "${BASH_SOURCE[0]}")/../support" && pwd)

# Ids that look random enough: a multiplicative generator, little-endian u16.
printf "$(awk 'BEGIN { x = 12345; for (i = 0; i < 2001; ++i) { x = (x * 16807) % 2147483647; t = x % 64; printf "\\x%02x\\x%02x", t, 0 } }')" > "$scratch/tokens.bin"
cat > "$scratch/job.yaml" << YAML
run: {name: chaos, steps: 6}
model: {num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64}
data: {train: [$scratch/tokens.bin]}
batch: {global_batch_size: 8, micro_batch_size: 2}
reproducibility: {lanes: 4}
device: {threads: 1}
YAML

# run_chaos RUN_DIRECTORY RANKS shm|mpi|hosts FAULT MORE…: stdout and stderr to $scratch/output; returns the exit code, 124 where it hung.
run_chaos() {
  local directory=$1 ranks=$2 where=$3 fault=$4
  shift 4
  local backend=$where launch=("$mpirun")
  local placed=(--bind-to none)
  if [[ $where == hosts ]]; then
    backend=auto launch=("$support/two_hosts.sh" --per-host "$((ranks / 2))" "$mpirun") placed=()
  fi
  timeout -k 10 "${CHAOS_TIMEOUT:-120}" "${launch[@]}" --quiet --oversubscribe "${placed[@]}" ${CHAOS_MPIRUN_OPTIONS:-} -n "$ranks" \
    "$tessera" train "$scratch/job.yaml" --run-dir "$directory" --set "collectives.backend=$backend" --set "chaos=[$fault]" "$@" > "$scratch/output" 2>&1
}

# Of $scratch/output: by what means the fault was found, after how long, and the error.
found_by() { sed -n -E 's/.*chaos: .* was found on rank [0-9]+ by (.*) after .*/\1/p' "$scratch/output" | head -n 1; }
found_after() { sed -n -E 's/.*chaos: .* was found on rank [0-9]+ by .* after (.*)/\1/p' "$scratch/output" | head -n 1; }
message() { grep -E '^\[rank ' "$scratch/output" | grep -v -e '\] warning: ' -e '\] chaos: ' | head -n 1 | sed -E 's/; hint: .*//'; }
