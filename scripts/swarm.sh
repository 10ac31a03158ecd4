#!/usr/bin/env bash
# A real Docker Swarm of three nodes on this one machine, each with a berth daemon and a simulated GPU of its own.
#
#   swarm.sh start DIR          starts it, all files below DIR; prints how to use it
#   swarm.sh stop DIR           ends all of it: processes, namespaces, mounts, cgroups
#   swarm.sh status DIR         what its manager says of the nodes
#   swarm.sh up|down DIR N      node N comes back; loses its power: every process of it is killed at once
#   swarm.sh link DIR N up|down its network cable
#   swarm.sh daemon DIR N       starts the berth daemon of node N again
#   swarm.sh placer DIR         starts the placer again
#
# A node is a network namespace and a mount namespace, kept by a sleeping process, with a dockerd, a simulator, and a berth
# daemon in them; a fourth network namespace is the switch between them. Bind mounts of a service name one path for all
# nodes, so each node sees its own simulator at the same place. All that is started is below one cgroup: what a killed run
# left behind is found and ended there. No firewall, no registry, nothing of the machine's own network.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
PATH="$PATH:/usr/sbin:/sbin"

usage() { die "usage: $(basename "$0") start|stop|status|placer DIR, up|down|daemon DIR N, or link DIR N up|down"; }
[ $# -ge 2 ] || usage
# Nothing of it is there.
if [ "$1" = stop ] && [ ! -e "$2/run" ]; then exit 0; fi
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=BERTH,BERTH_SWARM_GPU "$0" "$@"
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
dir=$(cd "$2" && pwd)
run=$(cat "$dir/run" 2>/dev/null || true)

NODES="1 2 3"
# Seconds an engine has to answer, and the processes of a node to be gone.
READY_S=60
END_S=20
PORT=7277
# Nobody listens there, so that a worker that wants to pull it is refused at once, and takes the image it has.
IMAGE=127.0.0.1:9/berth-test:local

address() { echo "10.201.0.$1"; }
host() { echo "unix://$run/n$1/docker.sock"; }
on() { local node=$1; shift; docker -H "$(host "$node")" "$@"; }

# === cgroups ===

# The hierarchy in which every process has one place, and can be killed with all below it.
unified() { if [ -d /sys/fs/cgroup/unified ]; then echo /sys/fs/cgroup/unified; else echo /sys/fs/cgroup; fi; }
name() { basename "$run"; }
# started_in GROUP COMMAND…: runs it in the background in that group of ours, out of reach of the caller's terminal.
started_in() {
    local group log=$2
    group=$(unified)/$(name)/$1
    shift 2
    mkdir -p "$group"
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec setsid "$@" </dev/null >>"$log" 2>&1 9>&-
    ) &
}
is_empty() { ! grep -q 'populated 1' "$1/cgroup.events" 2>/dev/null; }
thaw() {
    local freezer=/sys/fs/cgroup/freezer/$1 state
    [ -d "$freezer" ] || return 0
    find "$freezer" -name freezer.state | while read -r state; do echo THAWED >"$state"; done
}
# kill_group GROUP: everything in it, at once.
kill_group() {
    local group
    group=$(unified)/$1
    [ -d "$group" ] || return 0
    # What is frozen by version 1 takes no signal.
    thaw "$1"
    echo 1 >"$group/cgroup.kill"
    thaw "$1"
    wait_until "$END_S" is_empty "$group" || die "processes in $group do not end"
}
remove_group() {
    local root group
    for root in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [ -d "$root/$1" ] || continue
        find "$root/$1" -depth -type d | while read -r group; do rmdir "$group"; done
    done
}

# === nodes ===

holder() { cat "$run/$1/holder.pid" 2>/dev/null; }
# inside NODE COMMAND…: in its namespaces.
inside() { local node=$1; shift; nsenter -t "$(holder "n$node")" --mount --net --uts "$@"; }

# hold NAME: a process that keeps namespaces. It says so when its mounts are its own.
hold() {
    mkdir -p "$run/$1"
    started_in holders "$dir/holders.log" unshare --mount --net --uts sh -c \
        "mount --make-rprivate / && hostname $1 && echo \$\$ >$run/$1/holder.pid && exec sleep infinity"
    wait_until 5 test -s "$run/$1/holder.pid" || die "no namespaces for $1: $(tail -n 1 "$dir/holders.log")"
}

namespaces() {
    local node switch
    hold switch
    switch=$(holder switch)
    nsenter -t "$switch" -n ip link add br0 type bridge
    nsenter -t "$switch" -n ip link set br0 up
    mkdir -p "$run/sim"
    for node in $NODES; do
        hold "n$node"
        nsenter -t "$switch" -n ip link add "port$node" type veth peer name eth0 netns "$(holder "n$node")"
        nsenter -t "$switch" -n ip link set "port$node" master br0 up
        nsenter -t "$(holder "n$node")" -n ip link set lo up
        nsenter -t "$(holder "n$node")" -n ip addr add "$(address "$node")/24" dev eth0
        nsenter -t "$(holder "n$node")" -n ip link set eth0 up
        mkdir -p "$run/n$node/sim"
        inside "$node" mount --bind "$run/n$node/sim" "$run/sim"
    done
}

answers() { on "$1" version >/dev/null 2>&1; }
engine() {
    local node=$1
    rm -f "$run/n$node/docker.pid"
    started_in "n$node/host" "$dir/dockerd$node.log" nsenter -t "$(holder "n$node")" --mount --net --uts dockerd \
        --data-root "$dir/n$node" --exec-root "$run/n$node/exec" --pidfile "$run/n$node/docker.pid" --host "$(host "$node")" \
        --bridge none --iptables=false --ip6tables=false --cgroup-parent "/$(name)/n$node/docker"
}
engine_is_up() {
    wait_until "$READY_S" answers "$1" && return
    tail -n 20 "$dir/dockerd$1.log" >&2
    die "dockerd of node $1 did not answer within $READY_S s; its last lines are above"
}

simulator() {
    local node=$1
    rm -f "$run/n$node/sim/gpu.sock"
    started_in "n$node/host" "$dir/sim$node.log" \
        "$berth" sim serve --dir "$run/n$node/sim" --seed "$node" --profile "${BERTH_SWARM_GPU:-h200}"
    wait_until "$READY_S" test -S "$run/n$node/sim/gpu.sock" || die "the simulator of node $node did not start, see $dir/sim$node.log"
}

# === Swarm ===

image() {
    local node
    DOCKER_HOST=$(host 1) "$here/test-image.sh" "$berth" "$IMAGE" >/dev/null
    on 1 save "$IMAGE" >"$dir/image.tar"
    for node in 2 3; do on "$node" load --quiet <"$dir/image.tar" >/dev/null; done
}

# A node that does not answer is down after three heartbeats.
cluster() {
    local node token
    on 1 swarm init --advertise-addr "$(address 1)" --dispatcher-heartbeat 1s --task-history-limit 2 >/dev/null
    token=$(on 1 swarm join-token --quiet worker)
    for node in 2 3; do
        on "$node" swarm join --advertise-addr "$(address "$node")" --token "$token" "$(address 1):2377" >/dev/null
    done
}

# === berth ===

# The daemons start elsewhere.
berth=${BERTH:+$(realpath "$BERTH")}
find_berth() {
    [ -n "$berth" ] || berth=$(cd "$here/.." && target_dir)/debug/berth
    [ -x "$berth" ] || die "$berth not found: cargo build --workspace"
}

node_id() { on "$1" info --format '{{.Swarm.NodeID}}'; }

# Everything of a node is below its own directory, so that three daemons do not disturb each other.
settings() {
    local node=$1 here="$run/n$1"
    cat <<END
[nvml]
library = "$here/sim/lib/libnvidia-ml.so.1"
[docker]
mode = "required"
socket = "$here/docker.sock"
[probes]
libraries = ["$here/sim/lib/libcuda.so.1"]
[hold]
policy = "edf"
journal = "$here/holds"
driver = "$here/sim/lib/libcuda.so.1"
[history]
dir = "$here/history"
[table]
path = "$here/tasks"
[api]
socket = "$here/berth.sock"
[cluster]
listen = "$(address "$node"):$PORT"
node = "$(node_id "$node")"
key_file = "$here/node.key"
[placer]
socket = "$run/placer.sock"
engine_socket = "$here/docker.sock"
key_file = "$run/cluster.key"
ask_every = "300ms"
stale_after = "2s"
END
}

configure() {
    local node
    for node in $NODES; do settings "$node" >"$run/n$node/berth.toml"; done
    "$berth" --config "$run/n1/berth.toml" cluster key new >/dev/null
    for node in $NODES; do
        "$berth" --config "$run/n1/berth.toml" cluster key node "$(node_id "$node")" --out "$run/n$node/node.key" >/dev/null
    done
}

daemon() {
    started_in "n$1/host" "$dir/daemon$1.log" nsenter -t "$(holder "n$1")" --mount --net --uts \
        "$berth" --config "$run/n$1/berth.toml" daemon
    echo $! >"$run/n$1/daemon.pid"
    wait_until "$READY_S" test -S "$run/n$1/berth.sock" || die "the daemon of node $1 did not start, see $dir/daemon$1.log"
}

placer() {
    started_in n1/host "$dir/placer.log" nsenter -t "$(holder n1)" --mount --net --uts \
        "$berth" --config "$run/n1/berth.toml" cluster serve --engine swarm
    echo $! >"$run/placer.pid"
    wait_until "$READY_S" test -S "$run/placer.sock" || die "the placer did not start, see $dir/placer.log"
}

# === commands ===

start() {
    local node
    stop
    rm -f "$dir"/*.log
    run=$(mktemp -d /tmp/berth-swarm.XXXXXX)
    echo "$run" >"$dir/run"
    chmod 755 "$run"
    namespaces
    for node in $NODES; do
        simulator "$node"
        engine "$node"
    done
    for node in $NODES; do engine_is_up "$node"; done
    image
    cluster
    configure
    for node in $NODES; do daemon "$node"; done
    placer
    usage_of_it
}

usage_of_it() {
    cat <<END
export DOCKER_HOST=$(host 1)
alias berth='$berth --config $run/n1/berth.toml'
berth nodes
berth run --cluster --deadline 9s --no-resolve-image --mount type=bind,src=$run/sim,dst=/berth-sim --env LD_LIBRARY_PATH=/berth-sim/lib \\
    --mount type=bind,src=$berth,dst=/berth,ro $IMAGE /berth load
END
}

up() {
    simulator "$1"
    engine "$1"
    engine_is_up "$1"
    daemon "$1"
}

stop() {
    local mount
    [ -n "$run" ] || return 0
    kill_group "$(name)"
    for mount in $(mounts_under "$run") $(mounts_under "$dir"); do umount -l "$mount"; done
    remove_group "$(name)"
    rm -rf "$run" "$dir"/n? "$dir/image.tar" "$dir/run"
    run=
}

is_started() { [ -n "$run" ] || die "no Swarm was started with $dir"; }
is_node() { case " $NODES " in *" ${1:-none} "*) ;; *) die "node '${1:-}': there are $NODES" ;; esac; }

case "$1" in
    start | up | daemon | placer) find_berth ;;
esac
case "$1" in
    start | stop) ;;
    status | placer) is_started ;;
    up | down | daemon | link) is_started && is_node "${3:-}" ;;
    *) usage ;;
esac
case "$1" in
    start) start ;;
    stop) stop ;;
    status) on 1 node ls ;;
    up) up "$3" ;;
    down) kill_group "$(name)/n$3" ;;
    daemon) daemon "$3" ;;
    placer) placer ;;
    link) nsenter -t "$(holder "n$3")" --net ip link set eth0 "${4:?up or down}" ;;
esac
