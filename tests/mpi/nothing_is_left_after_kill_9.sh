#!/usr/bin/env bash
# Kills every rank of a running shm job, and mpirun, with SIGKILL: no process and no shared-memory file of ours may remain
# (memory without a name and sockets in the abstract namespace go with the last process that holds them).
#
#   nothing_is_left_after_kill_9.sh MPIRUN MPI_CONFORMANCE
set -euo pipefail
mpirun=$1 program=$2

# Open MPI leaves segments of its own when it is killed: they go to a scratch folder (and other jobs of this machine are not ours).
segments() { ls /dev/shm | grep -v -e '^vader_segment' -e '^osc_' || true; }

scratch=$(mktemp -d)
output=$scratch/output
trap 'rm -rf "$scratch"' EXIT
before=$(segments)
"$mpirun" --quiet --oversubscribe --mca btl_vader_backing_directory "$scratch" -n 3 "$program" shm forever > "$output" &
launcher=$!
for _ in $(seq 200); do
  { grep -q ready "$output" || ! kill -0 "$launcher" 2> /dev/null; } && break
  sleep 0.1
done
grep -q ready "$output" || { echo "the job did not start" >&2; kill -9 "$launcher" 2> /dev/null; exit 1; }

ranks=$(pgrep -P "$launcher")
[[ $(wc -w <<< "$ranks") -eq 3 ]] || { echo "expected 3 ranks under mpirun, found: $ranks" >&2; kill -9 "$launcher"; exit 1; }
arenas=0
for rank in $ranks; do grep -q 'memfd:tessera-arena' "/proc/$rank/maps" && arenas=$((arenas + 1)); done
[[ $arenas -eq 3 ]] || { echo "the ranks do not map an arena; this test would prove nothing" >&2; kill -9 $launcher $ranks; exit 1; }
kill -9 $launcher $ranks
wait "$launcher" 2> /dev/null || true

for _ in $(seq 50); do
  left=
  for rank in $ranks; do [[ -d /proc/$rank ]] && left+=" $rank"; done
  [[ -z $left ]] && break
  sleep 0.1
done
[[ -z $left ]] || { echo "processes left:$left" >&2; exit 1; }
# Whatever a rank may have started has its command line.
children=$(pgrep -f "$program shm forever" || true)
[[ -z $children ]] || { echo "processes of the job left: $children" >&2; exit 1; }
after=$(segments)
[[ $before == "$after" ]] || { echo "/dev/shm changed: '$before' → '$after'" >&2; exit 1; }
echo "nothing left"
