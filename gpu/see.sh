#!/usr/bin/env bash
# What berth sees on this machine's GPU, in real containers; run by gpu/run.sh. Results go to $BERTH_RESULTS.
#
#   see.sh [look|real|sim]…     default: all three
#
#   look   doctor, the workload verified, three containers as ps and the API show them
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
    heading "three containers"
    container.sh -d --name notebook --label berth.owner=ada -- berth load hold --alloc-bytes 8GiB --hold 60s
    container.sh -d --name trainer --label berth.owner=grace -- berth load --size 13312 --repeats 30
    container.sh -d --name server --label berth.owner=linus -- berth load light --repeats 300
    sleep 4
    berth ps
    command berth --set "docker.socket=${DOCKER_HOST#unix://}" daemon >"$out/daemon.log" 2>&1 &
    daemon=$!
    sleep 4
    berth ps
    berth ps --json
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv
    kill "$daemon"
    wait "$daemon"
    docker rm -f notebook trainer server >/dev/null
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
