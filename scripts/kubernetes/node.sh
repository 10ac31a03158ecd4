#!/usr/bin/env bash
# A real node for a cluster of scripts/kubernetes.sh: a kubelet, and a Docker Engine of its own that runs its pods.
#
#   node.sh start DIR NAME BERTH   joins the cluster whose data is under DIR; prints the engine's address. Pods can have the images
#                                  berth-test:local (scripts/test-image.sh, of that berth), berth:local (packaging/image) and
#                                  pause:local
#   node.sh stop-kubelet DIR, start-kubelet DIR NAME
#                                  the kubelet alone: its pods run on
#   node.sh stop DIR               ends both, with every pod, and removes the cgroups they made
#
# A kubelet has fixed places: /var/lib/kubelet, /var/log/pods, sysctls of the machine; so has berth's chart. Both programs live in a mount
# namespace where these are files under DIR/node, so that nothing outside is touched and nothing has to be put back. Only the cgroups
# (kubepods) are the machine's.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=scripts/kubernetes/programs.sh
. "$(dirname "$0")/programs.sh"
PATH="$PATH:/usr/sbin:/sbin"

HERE=$(cd "$(dirname "$0")" && pwd)
SCRIPTS=$(cd "$HERE/.." && pwd)
KUBELET=$(cd "$SCRIPTS/.." && pwd)/.tools/kubernetes/bin/kubelet
CGROUPS=/sys/fs/cgroup
END_S=30
# Which directory of DIR/node is in whose place.
PLACES="kubelet=/var/lib/kubelet log=/var/log run-berth=/run/berth state-berth=/var/lib/berth"
# What a kubelet sets, where it is not so already.
SYSCTLS="vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000"

usage() { die "usage: $(basename "$0") start DIR NAME BERTH | stop-kubelet DIR | start-kubelet DIR NAME | stop DIR"; }

# inside COMMAND…: in the node's mount namespace, which a process that sleeps keeps.
inside() { nsenter --mount --target "$(pid_of sleep)" -- "$@"; }

hide() {
    local place sysctl file
    setsid unshare --mount --propagation slave sleep infinity </dev/null >/dev/null 2>&1 8>&- 9>&- &
    echo $! >"$node/sleep.pid"
    wait_until "$END_S" pid_of sleep >/dev/null
    for place in $PLACES; do
        mkdir -p "$node/${place%=*}" "${place#*=}"
        inside mount --bind "$node/${place%=*}" "${place#*=}"
    done
    inside mount --make-rshared /var/lib/kubelet
    for sysctl in $SYSCTLS; do
        file="$node/sysctl/${sysctl%=*}"
        mkdir -p "$(dirname "$file")"
        echo "${sysctl#*=}" >"$file"
        inside mount --bind "$file" "/proc/sys/${sysctl%=*}"
    done
}

images() {
    export DOCKER_HOST=$1
    "$SCRIPTS/test-image.sh" "$2" berth-test:local >/dev/null
    # The image that is shipped, on what is here in place of Debian.
    docker tag berth-test:local debian:12-slim
    mkdir "$node/image"
    cp "$2" "$node/image/berth"
    docker build --quiet --file "$SCRIPTS/../packaging/image/Dockerfile" --tag berth:local "$node/image" >/dev/null 2>&1
    rm -r "$node/image"
    # What keeps a pod's namespaces: it waits until it is told to end.
    docker build --quiet --tag pause:local - >/dev/null 2>&1 <<DOCKERFILE
FROM berth-test:local
CMD ["sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"]
DOCKERFILE
}

start() {
    stop
    mkdir -p "$node"
    hide
    local address
    address=$(inside "$SCRIPTS/docker-instance.sh" start "$node/docker" \
        --add-runtime "here=$HERE/runc-without-oom-score" --default-runtime here)
    echo "$address" >"$node/address"
    images "$address" "$2"
    start_kubelet "$1"
    echo "$address"
}

# No firewall rules, no eviction for want of disk, no ports but one of 127.0.0.1.
start_kubelet() {
    local address
    address=$(cat "$node/address")
    # Not by a function, which would be the pid.
    nsenter --mount --target "$(pid_of sleep)" -- setsid "$KUBELET" --kubeconfig "$dir/kubelet.kubeconfig" --hostname-override "$1" \
        --docker-endpoint "$address" --docker "$address" --pod-infra-container-image pause:local \
        --experimental-dockershim-root-directory "$node/dockershim" --volume-plugin-dir "$node/volume-plugins" \
        --cert-dir "$node/pki" --address 127.0.0.1 --port "$(free_port)" --read-only-port 0 --healthz-port 0 \
        --make-iptables-util-chains=false --protect-kernel-defaults --oom-score-adj 0 --fail-swap-on=false \
        --eviction-hard "memory.available<1Mi" --image-gc-high-threshold 100 --streaming-connection-idle-timeout 1m \
        --sync-frequency 5s --node-status-update-frequency 2s \
        </dev/null >>"$node/kubelet.log" 2>&1 8>&- 9>&- &
    echo $! >"$node/kubelet.pid"
}

stop() {
    [ -d "$node" ] || return 0
    end kubelet
    if pid_of sleep >/dev/null; then
        inside "$SCRIPTS/docker-instance.sh" stop "$node/docker"
    fi
    end sleep
    local cgroup place
    # What somebody is in, as below a kubelet of the machine's own, stays.
    for cgroup in "$CGROUPS"/kubepods "$CGROUPS"/*/kubepods; do
        if [ -d "$cgroup" ]; then find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi
    done
    # Of an agent in a pod.
    rmdir "$CGROUPS"/berth-guard "$CGROUPS"/*/berth-guard 2>/dev/null || true
    rm -rf "$node"
    # Made to mount over; another's is not empty.
    for place in $PLACES; do
        rmdir "${place#*=}" 2>/dev/null || true
    done
}

[ $# -ge 2 ] || usage
[ "$(id -u)" -eq 0 ] || die "a kubelet needs root"
dir=$(cd "$2" 2>/dev/null && pwd) || die "no '$2': start a cluster there first"
node="$dir/node"
state=$node
case "$1" in
    start) [ $# -eq 4 ] || usage; start "$3" "$4" ;;
    stop-kubelet) end kubelet ;;
    start-kubelet) [ $# -eq 3 ] || usage; start_kubelet "$3" ;;
    stop) stop ;;
    *) usage ;;
esac
