#!/usr/bin/env bash
# Two containers that do not fit into this machine's GPU together, under `fifo`; run by gpu/run.sh:
#
#   gpu/run.sh --name memory memory.sh [PERCENT]     default: 60 % of the GPU's memory each
#
# wait   the second waits at its allocation until the first has ended (without park)
# park   the first is idle with its memory, which is moved out for the second and comes back
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

out=${BERTH_RESULTS:?run this by gpu/run.sh}
percent=${1:-60}
mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits --id=0)
# Three matrices of 256 MiB come besides.
bytes=$((mib * percent / 100 - 768))MiB
load=(berth load --size 8192 --alloc-bytes "$bytes")
heading() { printf '\n== %s\n' "$*"; }

# start NAME OPTION…: a daemon with fifo, and what it tells.
start() {
    local name=$1
    shift
    command berth --set "docker.socket=${DOCKER_HOST#unix://}" --set hold.policy=fifo --set fifo.park_idle=2s "$@" \
        daemon >"$out/$name-daemon.log" 2>&1 &
    daemon=$!
    wait_until 10 test -S /run/berth/berth.sock || die "the daemon did not start: $(cat "$out/$name-daemon.log")"
    command berth events --json >"$out/$name-events.jsonl" &
    events=$!
}

# finish NAME: how both ended, and what was done to them.
finish() {
    for container in first second; do
        echo "$container exited with $(docker wait "$container")"
        docker logs "$container" >"$out/$1-$container.jsonl" 2>&1
    done
    kill "$events" "$daemon"
    wait "$daemon" || true
    grep -E '"tenant_(held|released)"|"hold_failed"' "$out/$1-events.jsonl" || true
    docker rm -f first second >/dev/null
}

heading "wait: two of $bytes and 768 MiB, without park"
start wait --set 'hold.means=["gate", "freeze", "lock"]'
container.sh -d --name first -- "${load[@]}" --repeats 60
sleep 5
container.sh -d --name second -- "${load[@]}"
sleep 5
berth ps --wide
berth explain second
finish wait

heading "park: the first computes, idles with its memory for two minutes, and computes again"
start park
container.sh -d --name first -- "${load[@]}" --repeats 2 --gap 120s
sleep 5
container.sh -d --name second -- "${load[@]}" --repeats 20
sleep 10
berth ps --wide
berth explain first
berth explain second
finish park
