#!/usr/bin/env bash
# The two-rank A/B experiment: what the swapped pair prints at a level, and how it ends.
#
#   swapped_pair.sh MPIRUN TESSERA_SWAPPED_PAIR LEVEL
set -uo pipefail
mpirun=$1 program=$2 level=$3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
output=$("$mpirun" --quiet --oversubscribe -n 2 "$program" "$level" 2>&1)
code=$?
echo "$output"
echo "exit $code"

fail() { echo "FAIL: $*"; exit 1; }
says() { grep -qF -- "$1" <<< "$output"; }
case $level in
  off | log)
    [[ $code -eq 0 && $output == "A=3001 B=3001" ]] || fail "expected the wrong sums and no complaint" ;;
  step)
    [[ $code -eq 4 ]] && says "A=3001 B=3001" && says "the calls of world/compute before call 2 differ" || fail "expected the sums, then the histories" ;;
  strict)
    [[ $code -eq 4 ]] && says "collective mismatch at call 0 of world/compute" && says "tag B example" || fail "expected the mismatch"
    ! says "A=" || fail "sums were used" ;;
esac
