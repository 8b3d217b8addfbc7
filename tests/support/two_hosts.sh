#!/usr/bin/env bash
# Runs an mpirun command over two hosts made of this machine: two network namespaces with a wire between them, each with a host name of
# its own, so that MPI sees two hosts. Everything is removed at the end, however it ends. It shows what crosses a network, not speed.
#
#   two_hosts.sh [--per-host N] MPIRUN ARGUMENTS…     for example: two_hosts.sh --per-host 2 mpirun -n 4 ./program
#   two_hosts.sh [--per-host N] --launch TESSERA ARGUMENTS…      the same for TESSERA launch ARGUMENTS…
#
# The options that place ranks on the hosts are put in front of ARGUMENTS (the rest of mpirun's goes to `tessera launch` by the environment). Inside, TWO_HOSTS_A and TWO_HOSTS_B name the namespaces and
# TWO_HOSTS_LINK the wire's end in each (to cut it: ip -n "$TWO_HOSTS_B" link set "$TWO_HOSTS_LINK" down).
# Exit status: that of mpirun; 77, and "skipped: reason", where namespaces are not allowed.
set -euo pipefail

per_host=2
if [[ ${1:-} == --per-host ]]; then per_host=$2; shift 2; fi
launch=
if [[ ${1:-} == --launch ]]; then launch=1; shift; fi
[[ $# -ge 2 ]] || { sed -n '5,6p' "$0" >&2; exit 2; }
mpirun=$1
shift

skip() { echo "skipped: $*"; exit 77; }
[[ $(uname -s) == Linux ]] || skip "needs Linux"
command -v ip > /dev/null || skip "needs the command ip (package iproute2)"
[[ $(id -u) -eq 0 ]] || skip "network namespaces need root"

export TWO_HOSTS_A="tessera-a-$$" TWO_HOSTS_B="tessera-b-$$" TWO_HOSTS_LINK=wire0
readonly NETWORK=10.213.77 NAME_A=tessera-a NAME_B=tessera-b
scratch=$(mktemp -d)

cleanup() {
  local status=$? namespace
  trap '' INT TERM
  for namespace in "$TWO_HOSTS_A" "$TWO_HOSTS_B"; do
    ip netns pids "$namespace" 2> /dev/null | xargs -r kill -9 2> /dev/null || true
    ip netns delete "$namespace" 2> /dev/null || true
  done
  rm -rf "$scratch"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

reason=$(ip netns add "$TWO_HOSTS_A" 2>&1 && ip netns add "$TWO_HOSTS_B" 2>&1) || skip "no network namespaces: $reason"
reason=$(ip netns exec "$TWO_HOSTS_A" true 2>&1) || skip "no way into a network namespace: $reason"  # in a chroot, for one
reason=$(ip link add "$TWO_HOSTS_LINK" netns "$TWO_HOSTS_A" type veth peer name "$TWO_HOSTS_LINK" netns "$TWO_HOSTS_B" 2>&1) ||
  skip "no veth pair: $reason"
reason=$(unshare --uts true 2>&1) || skip "no UTS namespace: $reason"
number=1
for namespace in "$TWO_HOSTS_A" "$TWO_HOSTS_B"; do
  ip -n "$namespace" address add "$NETWORK.$number/24" dev "$TWO_HOSTS_LINK"
  ip -n "$namespace" link set "$TWO_HOSTS_LINK" up
  ip -n "$namespace" link set lo up
  number=$((number + 1))
done

# What mpirun calls instead of ssh: the host, then a command line for a shell.
cat > "$scratch/agent" << AGENT
#!/bin/sh
case \$1 in
  $NETWORK.1) namespace=$TWO_HOSTS_A name=$NAME_A ;;
  $NETWORK.2) namespace=$TWO_HOSTS_B name=$NAME_B ;;
  *) echo "two_hosts: no host \$1" >&2; exit 1 ;;
esac
shift
# As a shell that finds no way to a host.
ip -n "\$namespace" -o link show "$TWO_HOSTS_LINK" | grep -q "state UP" || { sleep 2; exit 255; }
exec ip netns exec "\$namespace" unshare --uts sh -c 'hostname "\$0" && exec sh -c "\$1"' "\$name" "\$*"
AGENT
chmod +x "$scratch/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
settings=(plm_rsh_agent "$scratch/agent" btl_tcp_if_include "$NETWORK.0/24" oob_tcp_if_include "$NETWORK.0/24")
hosts="$NETWORK.1:$per_host,$NETWORK.2:$per_host"
if [[ -n $launch ]]; then
  for ((i = 0; i < ${#settings[@]}; i += 2)); do export "OMPI_MCA_${settings[i]}=${settings[i + 1]}"; done
  placing=(launch --host "$hosts")
else
  placing=(--oversubscribe --host "$hosts")
  for ((i = 0; i < ${#settings[@]}; i += 2)); do placing+=(--mca "${settings[i]}" "${settings[i + 1]}"); done
fi
ip netns exec "$TWO_HOSTS_A" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$NAME_A" "$mpirun" "${placing[@]}" "$@"
