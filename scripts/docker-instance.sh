#!/usr/bin/env bash
# A Docker Engine of our own for tests: no network, no firewall rules, nothing shared with an engine of the machine.
#
#   docker-instance.sh start DIR [OPTION…]   starts one whose data is under DIR, with further options of dockerd; prints its address
#                                            (unix:///…)
#   docker-instance.sh stop DIR              removes its containers, ends it, unmounts and deletes what it left
#
# Sockets live in a short directory of their own, named in DIR/run: a Unix socket's path holds 107 bytes at most.
# A start over an instance that a killed test left behind stops that one first.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
PATH="$PATH:/usr/sbin:/sbin"

[ $# -ge 2 ] || die "usage: $(basename "$0") start DIR [OPTION…] | stop DIR"
mkdir -p "$2"
dir=$(cd "$2" && pwd)

# Seconds an engine has to answer, and to end.
READY_S=60
END_S=30

answers() { docker -H "unix://$1/docker.sock" version >/dev/null 2>&1; }
# A pid file outlives its process: believe it only while that pid is a dockerd.
engine_pid() {
    local pid
    pid=$(cat "$1/docker.pid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && echo "$pid"
}
is_gone() { ! engine_pid "$1" >/dev/null; }
is_up_or_dead() { answers "$1" || ! kill -0 "$2" 2>/dev/null; }

start() {
    stop
    local run
    run=$(mktemp -d /tmp/berth-docker.XXXXXX)
    echo "$run" >"$dir/run"
    # --group: the caller may use the socket even when the engine had to be started through sudo.
    as_root setsid dockerd --data-root "$dir/data" --exec-root "$run/exec" --pidfile "$run/docker.pid" \
        --host "unix://$run/docker.sock" --group "$(id -g)" \
        --bridge none --iptables=false --ip6tables=false "$@" \
        </dev/null >"$dir/dockerd.log" 2>&1 &
    if ! wait_until "$READY_S" is_up_or_dead "$run" $! || ! answers "$run"; then
        tail -n 20 "$dir/dockerd.log" >&2
        stop
        die "dockerd did not answer within $READY_S s; its last lines are above"
    fi
    echo "unix://$run/docker.sock"
}

stop() {
    local run pid mount
    run=$(cat "$dir/run" 2>/dev/null) || return 0
    if answers "$run"; then
        # A paused container cannot be told to stop: remove, do not ask.
        docker -H "unix://$run/docker.sock" ps -aq | xargs -r docker -H "unix://$run/docker.sock" rm -f >/dev/null 2>&1 || true
    fi
    if pid=$(engine_pid "$run"); then
        as_root kill "$pid"
        if ! wait_until "$END_S" is_gone "$run"; then
            as_root kill -9 "$pid"
        fi
    fi
    for mount in $(mounts_under "$run") $(mounts_under "$dir"); do
        as_root umount -l "$mount"
    done
    as_root rm -rf "$run" "$dir/data" "$dir/run"
}

case "$1" in
    start) start "${@:3}" ;;
    stop) stop ;;
    *) die "start or stop, not '$1'" ;;
esac
