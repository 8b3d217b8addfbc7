#!/usr/bin/env bash
# Kills every rank of a running shm job, and mpirun, with SIGKILL: no shared-memory file, socket or process of ours may remain.
#
#   nothing_is_left_after_kill_9.sh MPIRUN MPI_CONFORMANCE
set -euo pipefail
mpirun=$1 program=$2

# Open MPI leaves segments of its own when it is killed: they go to a scratch folder (and other jobs of this machine are not ours).
segments() { ls /dev/shm | grep -v -e '^vader_segment' -e '^osc_' || true; }
# Names of our sockets that no process holds any more: those of other jobs have a holder.
sockets() {
  local inode name
  while read -r inode name; do
    [[ -n $(find /proc/[0-9]*/fd -lname "socket:\[$inode\]" -print -quit 2> /dev/null) ]] || echo "$name"
  done < <(awk '$8 ~ /^@tessera-/ {print $7, $8}' /proc/net/unix)
}

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
arenas=$(grep -l 'memfd:tessera-arena' /proc/[0-9]*/maps 2> /dev/null | wc -l || true)
[[ $arenas -ge 3 ]] || { echo "the ranks do not map an arena; this test would prove nothing" >&2; kill -9 $launcher $ranks; exit 1; }
kill -9 $launcher $ranks
wait "$launcher" 2> /dev/null || true

for _ in $(seq 50); do
  left=
  for rank in $ranks; do [[ -d /proc/$rank ]] && left+=" $rank"; done
  [[ -z $left ]] && break
  sleep 0.1
done
[[ -z $left ]] || { echo "processes left:$left" >&2; exit 1; }
after=$(segments)
[[ $before == "$after" ]] || { echo "/dev/shm changed: '$before' → '$after'" >&2; exit 1; }
names=$(sockets)
[[ -z $names ]] || { echo "sockets left: $names" >&2; exit 1; }
echo "nothing left"
