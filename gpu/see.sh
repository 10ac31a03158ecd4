#!/usr/bin/env bash
# What berth sees on this machine's GPU, in real containers; run by gpu/run.sh. Results go to $BERTH_RESULTS.
#
#   see.sh [look|real|sim]…     default: all three
#
#   look   doctor, the workload verified, three containers as ps, top, events and metrics show them
#   real   berth bench detect on the GPU
#   sim    detection and cost on the simulated one, beside it
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

out=${BERTH_RESULTS:?run this by gpu/run.sh}
heading() { printf '\n== %s\n' "$*"; }
berth() { command berth --set "docker.socket=${DOCKER_HOST#unix://}" "$@"; }

look() {
    heading "doctor"
    berth doctor
    heading "workload, verified"
    for block in 16 32; do
        berth load --size 13312 --block "$block" --fill --verify | tee "$out/load-13312-block$block.jsonl" | grep -E '"(verify|summary|device)"'
    done
    heading "three containers, without a daemon"
    three_containers
    sleep 4
    berth ps
    docker rm -f notebook trainer server >/dev/null
    heading "three containers, watched from their start"
    command berth --set "docker.socket=${DOCKER_HOST#unix://}" daemon >"$out/daemon.log" 2>&1 &
    daemon=$!
    wait_until 10 test -S /run/berth/berth.sock || die "the daemon did not start: $(cat "$out/daemon.log")"
    command berth events --json >"$out/events.jsonl" &
    events=$!
    three_containers
    sleep 6
    berth ps
    berth ps --json
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv
    heading "top"
    # What a terminal of this size was told; `cat` it in one to see the screen.
    # --foreground: in a process group of its own it would be stopped when it takes the terminal.
    TERM=xterm-256color timeout -k 2 15 script -qec 'stty cols 130 rows 24; timeout --foreground 5 berth top' "$out/top.raw" \
        </dev/null >/dev/null || true
    heading "metrics"
    curl -sS --unix-socket /run/berth/berth.sock http://berth/metrics | grep -v '^#'
    docker rm -f server >/dev/null
    docker kill trainer >/dev/null
    sleep 1
    heading "events"
    berth ps
    kill "$events" "$daemon"
    wait "$daemon"
    cat "$out/events.jsonl"
    docker rm -f notebook trainer >/dev/null
}

three_containers() {
    container.sh -d --name notebook --label berth.owner=ada -- berth load hold --alloc-bytes 8GiB --hold 60s
    container.sh -d --name trainer --label berth.owner=grace -- berth load --size 13312 --repeats forever
    container.sh -d --name server --label berth.owner=linus -- berth load light --repeats 300
}

real() {
    heading "berth bench detect on the GPU"
    berth bench detect --gpu real --ground docker --save "$out/detect-real.json"
}

sim() {
    heading "berth bench detect on the simulated H200"
    berth bench detect --gpu sim --profile h200 --ground docker --part detection --part cost --save "$out/detect-sim.json"
}

[ $# -gt 0 ] || set -- look real sim
for part in "$@"; do
    "$part"
done
