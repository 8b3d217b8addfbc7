#!/usr/bin/env bash
# Every collective fault of `chaos`, on rank 1 at step 3: a table of fault × ranks × backend × program check × exit code × found by × time × message.
# Exits 1 at the end where a run did not end with code 4, or nobody said by what means it was found.
#
#   chaos_table.sh [TESSERA MPIRUN]      RANKS="2 4" WHERE="shm mpi hosts" CHECK="true false" FAULTS="wrong_count:all_reduce …" narrow it
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tessera=${1:-$root/build/cpu-release/tessera} mpirun=${2:-mpirun}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. "$root/tests/mpi/chaos_job.sh"

# D1, D5, D3: FAULT or FAULT:OP.
faults=${FAULTS:-swap_collectives skip_collective:all_gather skip_collective:all_reduce extra_collective:all_gather wrong_dtype:all_gather \
  wrong_dtype:reduce_scatter wrong_count:all_gather wrong_count:reduce_scatter wrong_count:all_reduce wrong_reduce_op:reduce_scatter \
  wrong_reduce_op:all_reduce wrong_root}
failed=0 passed=0 skipped=0
row() { printf '%-31s | %-5s | %-5s | %-5s | %-4s | %-17s | %10s | %s\n' "$@"; }
row fault ranks where check exit "found by" after message
for where in ${WHERE:-shm mpi hosts}; do for ranks in ${RANKS:-2 4}; do for check in ${CHECK:-true false}; do for each in $faults; do
  fault=${each%%:*} op=
  [[ $each == *:* ]] && op=", op: ${each##*:}"
  run_chaos "$scratch/run" "$ranks" "$where" "{rank: 1, step: 3, fault: $fault$op}" --set "collectives.program_check=$check" \
    --set collectives.timeout_seconds=5
  code=$?
  if [[ $code -eq 77 ]]; then
    skipped=$((skipped + 1)); row "$each" "$ranks" "$where" "$check" skip "" "" "$(tail -n 1 "$scratch/output")"
  else
    row "$each" "$ranks" "$where" "$check" "$code" "$(found_by)" "$(found_after)" "$(message)"
    if [[ $code -eq 4 && -n $(found_by) && $(grep -c 'was found on rank' "$scratch/output") -eq 1 ]]; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1)); echo "FAIL: expected exit code 4 and one finding:"; tail -n 12 "$scratch/output"
    fi
  fi
  rm -rf "$scratch/run"
done; done; done; done
echo "$passed found, $failed failed, $skipped skipped"
[[ $failed -eq 0 && $((passed + skipped)) -gt 0 ]] || exit 1
[[ $passed -gt 0 ]] || exit 77
