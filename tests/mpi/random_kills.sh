#!/usr/bin/env bash
# Kills ranks of a job under `tessera launch --max-restarts` with SIGKILL, COUNT times at random moments: one rank, all ranks, or mpirun; while it
# starts, trains, or saves. As many runs as that takes; each must end with the state_hash of a run that nobody disturbed, and nothing may be left:
# no process, no lock, no unfinished save, and, of runs whose mpirun was let alone, no file of Open MPI in its session and shared-memory folders.
#
#   [MPIRUN=no] random_kills.sh TESSERA COUNT [SEED [RANKS [STEPS]]]      MPIRUN=no: ranks alone are killed
set -uo pipefail
[[ $# -ge 2 ]] || { sed -n '6p' "$0" >&2; exit 2; }
tessera=$(realpath "$1") count=$2 seed=${3:-1} ranks=${4:-2} steps=${5:-1500}
scratch=$(mktemp -d /tmp/tessera-kills-XXXXXX)
launch=
cleanup() { [[ -z $launch ]] || kill -9 "$launch" 2> /dev/null; ours | xargs -r kill -9 2> /dev/null; rm -rf "$scratch"; }
trap cleanup EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir "$scratch/tmp" "$scratch/shm"
# Other jobs of this machine are not ours: the run's sessions and segments go to folders of their own.
export TMPDIR=$scratch/tmp OMPI_MCA_btl_vader_backing_directory=$scratch/shm

# Ids that look random enough: a multiplicative generator, little-endian u16.
printf "$(awk 'BEGIN { x = 12345; for (i = 0; i < 2001; ++i) { x = (x * 16807) % 2147483647; t = x % 64; printf "\\x%02x\\x%02x", t, 0 } }')" > "$scratch/tokens.bin"
cat > "$scratch/job.yaml" << YAML
run: {name: kills, steps: $steps, log_every: 50, hash_every: $steps}
model: {num_layers: 2, num_heads: 4, hidden_size: 32, seq_len: 16, vocab_size: 64}
data: {train: [$scratch/tokens.bin]}
batch: {global_batch_size: 8, micro_batch_size: 2}
reproducibility: {lanes: 4}
device: {threads: 1}
checkpoint: {every: 7, keep_latest: 2}
collectives: {timeout_seconds: 10}
YAML

RANDOM=$seed
pids_of() { pgrep -f -- "$1" || true; }
ours() { pids_of "--run-dir $scratch/"; }
ranks_of_run() { for p in $(ours); do [[ $(cat "/proc/$p/cmdline" 2> /dev/null | tr '\0' ' ') == "$tessera train "* ]] && echo "$p"; done; }
mpirun_of_run() { for p in $(ours); do [[ $(cat "/proc/$p/comm" 2> /dev/null) == mpirun ]] && echo "$p"; done; }
last_hash() { grep -o '"state_hash":"[0-9a-f]*"' "$1/metrics.jsonl" | tail -n 1; }
short_sleep() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

"$tessera" launch -n 1 "$scratch/job.yaml" --run-dir "$scratch/reference" > "$scratch/output" 2>&1 || { cat "$scratch/output"; exit 1; }
expected=$(last_hash "$scratch/reference")
echo "undisturbed: $expected"

failed=0 kills=0 runs=0
declare -A by=()
complain() { failed=$((failed + 1)); echo "  FAIL: $*"; tail -n 12 "$scratch/errors" | cut -c 1-300 | sed 's/^/    /'; }
last_start() { grep -s '"kind":"start"' "$run/metrics.jsonl" | tail -n 1; }
# until CONDITION…: asked often, and not for ever; also where the launcher ends.
until_true() { for ((i = 0; i < 3000; ++i)); do "$@" && return; kill -0 "$launch" 2> /dev/null || return; sleep 0.01; done; }
has_started() { [[ $(last_start) != "$start_before" ]]; }
is_saving() { compgen -G "$run/checkpoints/.saving-*" > /dev/null; }
# Waits for a moment, sets `moment`; not in a subshell: each draw must move the generator of this one.
wait_for_moment() {
  local draw=$RANDOM more=$RANDOM
  case $((draw % 4)) in
    0) moment=start; short_sleep $((more % 600)) ;;
    1 | 2) moment=step; until_true has_started; short_sleep $((more % 1000)) ;;
    3) moment=save; until_true has_started; short_sleep $((more % 200)); until_true is_saving ;;
  esac
}
while ((kills < count)); do
  runs=$((runs + 1)) before=$kills mpiruns=0 run=$scratch/run-$runs start_before=
  "$tessera" launch -n "$ranks" --max-restarts 1000 "$scratch/job.yaml" --run-dir "$run" > "$scratch/output" 2> "$scratch/errors" &
  launch=$!
  while ((kills < count)) && kill -0 "$launch" 2> /dev/null; do
    mapfile -t alive < <(ranks_of_run)
    if [[ ${#alive[@]} -lt $ranks ]]; then start_before=$(last_start); sleep 0.02; continue; fi
    wait_for_moment
    case $((RANDOM % 8)) in
      0 | 1 | 2) what="all ranks" victims=("${alive[@]}") ;;
      3) [[ ${MPIRUN:-yes} == yes ]] || continue
         what=mpirun; mapfile -t victims < <(mpirun_of_run) ;;
      *) what="one rank" victims=("${alive[RANDOM % ${#alive[@]}]}") ;;
    esac
    [[ ${#victims[@]} -gt 0 ]] && kill -9 "${victims[@]}" 2> /dev/null || continue
    kills=$((kills + 1))
    [[ $what != mpirun ]] || mpiruns=$((mpiruns + 1))
    by["$what, $moment"]=$((${by["$what, $moment"]:-0} + 1))
    # The next moment counts from the next attempt.
    while kill -0 "${alive[0]}" 2> /dev/null && kill -0 "$launch" 2> /dev/null; do sleep 0.02; done
  done
  wait "$launch"
  code=$?
  launch=
  hash=$(last_hash "$run")
  echo "run $runs: $((kills - before)) kills, $(grep -c 'starting again' "$scratch/errors") restarts ($(grep -c 'starting again.* from step' "$scratch/errors") from a step), exit $code, $hash"
  [[ $code -eq 0 ]] || complain "expected exit 0"
  [[ $hash == "$expected" ]] || complain "expected $expected"
  [[ $(grep -c '"grad_norm"' "$run/metrics.jsonl") -eq $(grep -c '"grad_norm"' "$scratch/reference/metrics.jsonl") ]] || complain "metrics.jsonl has other lines"
  [[ ! -e $run/.lock ]] || complain "a lock is left"
  ! compgen -G "$run/checkpoints/.saving-*" > /dev/null || complain "an unfinished save is left"
  [[ -z $(ours) ]] || complain "processes left: $(ours | tr '\n' ' ')"
  left=$(find "$scratch/tmp" "$scratch/shm" -mindepth 1 -type f | head -n 3)
  [[ -z $left || $mpiruns -gt 0 ]] || complain "files left: $left"
  find "$scratch/tmp" "$scratch/shm" -mindepth 1 -delete
  rm -rf "$run"
done
for key in "${!by[@]}"; do echo "  $key: ${by[$key]}"; done | sort
echo "$kills kills in $runs runs, $failed failures"
[[ $failed -eq 0 ]]
