#!/usr/bin/env bash
# N runs with a random fault each: none hangs, each ends with a code that its fault explains, and nothing is left: no process of the run, no file in
# its shared-memory folder, no session folder of Open MPI.
#
#   random_faults.sh N [SEED] [TESSERA MPIRUN]
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
runs=$1 seed=${2:-1} tessera=${3:-$root/build/cpu-release/tessera} mpirun=${4:-mpirun}
scratch=$(mktemp -d /tmp/tessera-random-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
. "$root/tests/mpi/chaos_job.sh"
# Other jobs of this machine are not ours: the run's sessions and segments go to folders of their own.
mkdir "$scratch/tmp" "$scratch/shm"
export TMPDIR=$scratch/tmp CHAOS_MPIRUN_OPTIONS="--mca btl_vader_backing_directory $scratch/shm" CHAOS_TIMEOUT=60

RANDOM=$seed
ours() { pgrep -f -- "--run-dir $scratch/" || true; }
failed=0
complain() { failed=$((failed + 1)); echo "  FAIL: $*"; tail -n 12 "$scratch/output" | sed 's/^/    /'; }
for ((n = 1; n <= runs; ++n)); do
  # Not in a subshell: each draw must move the generator of this one.
  faults=(swap_collectives skip_collective extra_collective wrong_dtype wrong_count wrong_reduce_op wrong_root nan_loss throw hang exit kill stop slow slow_teardown)
  fault=${faults[RANDOM % ${#faults[@]}]}
  ranks=$((RANDOM % 2 == 0 ? 2 : 4)) step=$((RANDOM % 6 + 1))
  rank=$((RANDOM % ranks))
  backend=$([[ $((RANDOM % 2)) -eq 0 ]] && echo shm || echo mpi); : $((RANDOM))
  check=$([[ $((RANDOM % 2)) -eq 0 ]] && echo true || echo false); : $((RANDOM))
  more= expected=4
  case $fault in
    nan_loss) expected=0 ;;
    slow | slow_teardown) more=", seconds: 0.1" expected=0 ;;
    throw) expected=70 ;;
    kill | exit) expected="not 0" ;;
  esac
  run_chaos "$scratch/run" "$ranks" "$backend" "{rank: $rank, step: $step, fault: $fault$more}" --set "collectives.program_check=$check" \
    --set collectives.timeout_seconds=3
  code=$?
  echo "$n: $fault of rank $rank of $ranks at step $step, $backend, check $check: exit $code, found by $(found_by)"
  [[ $code -ne 124 && $code -ne 137 || $fault == kill ]] || complain "it hung"
  if [[ $expected == "not 0" ]]; then
    [[ $code -ne 0 ]] || complain "expected a code that is not 0"
  else
    [[ $code -eq $expected ]] || complain "expected code $expected"
  fi
  [[ -f $scratch/run/chaos/fault-0.json ]] || complain "the fault did not fire"
  # mpirun returns before the last of its children is reaped.
  for ((wait = 0; wait < 50; ++wait)); do
    [[ -z $(ours) && -z $(ls -A "$scratch/tmp" "$scratch/shm" | grep -v ':$' | grep .) ]] && break
    sleep 0.1
  done
  [[ -z $(ours) ]] || { complain "processes left: $(ours | tr '\n' ' ')"; ours | xargs -r kill -9; }
  left=$(find "$scratch/tmp" "$scratch/shm" -mindepth 1 | head -n 3)
  [[ -z $left ]] || { complain "files left: $left"; find "$scratch/tmp" "$scratch/shm" -mindepth 1 -delete; }
  rm -rf "$scratch/run"
done
echo "$runs runs, $failed failures"
[[ $failed -eq 0 ]]
