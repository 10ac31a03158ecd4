#!/usr/bin/env bash
# Containers with deadlines on this machine's GPU, with real containers; run by gpu/run.sh. Results go to $BERTH_RESULTS.
#
#   deadline.sh [OPTION]… [PART]…     PARTs are bench, screens, policies and sim; default: all, in about 15 minutes; bench and screens take 4
#
#   --gpu real|sim   on which GPU bench and screens are; sim is for trying this script out (default: real)
#   --quick          short measurements
#
#   bench     berth bench deadline: ten containers against their own timers, and what the monitor costs
#   screens   deadlines given by `docker run -dl`: the container's configuration on disk, `docker ps` with the column, ps, history
#   policies  five containers, four of them with deadlines, held by nobody, by fifo and by edf: which deadlines are met
#   sim       bench on the simulated H200 and RTX 3090, beside it
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

gpu=real
quick=() parts=()
while [ $# -gt 0 ]; do
    case "$1" in
        --gpu) gpu=${2:?--gpu needs real or sim} && shift ;;
        --quick) quick=(--quick) ;;
        bench | screens | policies | sim) parts+=("$1") ;;
        *) die "unknown: $1; see the head of $0" ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(bench screens policies sim)
out=${BERTH_RESULTS:?run this by gpu/run.sh}
berth() { command berth --set "docker.socket=${DOCKER_HOST#unix://}" "$@"; }
heading() { printf '\n== %s (%s s since the start)\n' "$*" "$SECONDS"; }

failed=()
dir=$(mktemp -d)
pids=()
finish() {
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait || true
    rm -rf "$dir"
}
trap finish EXIT

# start NAME PROGRAM…: in the background until this script ends, its output kept.
start() {
    local name=$1
    shift
    # exec: the pid must be the program's own, not that of a shell which would leave it behind.
    (exec "$@") >"$out/$name" 2>&1 &
    pids+=($!)
}

# The GPU as containers and daemons are told of it.
container=() told=()
prepare() {
    [ ! -e "$dir/bin" ] || return 0
    command berth docker-shim install --dir "$dir/bin" --plugin-dir "$dir/plugins" >/dev/null
    if [ "$gpu" = sim ]; then
        start simulator.log berth sim serve --dir "$dir/sim" --profile h200
        wait_until 10 test -e "$dir/sim/lib/libcuda.so.1" || die "no simulated GPU: $(cat "$out/simulator.log")"
        read -ra container <<<"$(command berth sim env --dir "$dir/sim" --docker)"
        read -ra told <<<"$(command berth sim env --dir "$dir/sim" --berth)"
    fi
}

# watch NAME [SETTING]…: a daemon of that name, how to ask it in `watched`, and what it tells in NAME-events.jsonl.
watched=()
watch() {
    local name=$1 at=$dir/$1 setting
    shift
    mkdir -p "$at"
    watched=("${told[@]}" --set "docker.socket=${DOCKER_HOST#unix://}" --set "api.socket=$at/berth.sock")
    watched+=(--set "table.path=$at/tasks" --set "hold.journal=$at/holds" --set "history.dir=$at/history")
    for setting in "$@"; do watched+=(--set "$setting"); done
    start "$name-daemon.log" berth "${watched[@]}" daemon
    wait_until 10 test -S "$at/berth.sock" || die "the daemon did not start: $(cat "$out/$name-daemon.log")"
    start "$name-events.jsonl" berth --socket "$at/berth.sock" events --json
}

# judged NAME COUNT: so many units have been.
judged() { [ "$(grep -c '"unit_judged"' "$out/$1-events.jsonl")" -ge "$2" ]; }

screens() {
    local name deadline config
    prepare
    watch screens

    # The published screen: five containers with deadlines in seconds.
    for name in test1:3 test2:1 test3:5 test4:3 test5:2; do
        deadline=${name#*:} name=${name%:*}
        heading "docker run -dl $deadline --name $name"
        BERTH_GPU_DOCKER=$dir/bin/docker container.sh -d -dl "$deadline" --name "$name" "${container[@]}" -- \
            berth load --size 5120 --repeats 20 --tasks 4 --task-gap 500ms..3s
    done
    heading "docker ps"
    "$dir/bin/docker" ps
    heading "the containers' configuration on disk"
    for name in test1 test2 test3 test4 test5; do
        config=$(docker info --format '{{.DockerRootDir}}')/containers/$(docker inspect --format '{{.Id}}' "$name")/config.v2.json
        echo "$config: $(grep -oE '"berth\.deadline":"[^"]*"' "$config")"
    done
    sleep 4
    heading "berth ps"
    berth "${watched[@]}" ps
    docker wait test1 test2 test3 test4 test5 >/dev/null
    wait_until 10 judged screens 20 || failed+=(screens)
    heading "verdicts"
    grep '"unit_judged"' "$out/screens-events.jsonl" || true
    heading "berth history test1"
    berth "${watched[@]}" history test1
    docker rm -f test1 test2 test3 test4 test5 >/dev/null
}

# policies: tasks of 0.6 to 2.4 s of an H200 that take nine tenths of its time; each daemon knows what those before it learnt.
policies() {
    local policy name deadline products tasks gap tasks_of rest=() history=
    prepare
    for policy in off fifo edf; do
        heading "policy $policy"
        mkdir -p "$dir/$policy"
        [ -z "$history" ] || cp -r "$history" "$dir/$policy/history"
        watch "$policy" "hold.policy=$policy"
        while read -r name deadline products tasks gap; do
            rest=()
            [ "$deadline" = none ] || rest=(-dl "$deadline")
            BERTH_GPU_DOCKER=$dir/bin/docker container.sh -d "${rest[@]}" --name "$name" "${container[@]}" -- \
                berth load --size 5120 --repeats "$products" --tasks "$tasks" --task-gap "$gap" >/dev/null
        done <<'END'
short 1500ms 10 24 2s..4s
middle 3s 20 14 4s..6s
long 6s 40 7 8s..12s
loose 20s 40 7 8s..12s
none none 40 7 8s..12s
END
        docker wait short middle long loose none >/dev/null
        wait_until 10 judged "$policy" 52 || failed+=("policy $policy")
        for name in short middle long loose none; do
            tasks_of=$(grep '"unit_judged"' "$out/$policy-events.jsonl" | grep "\"name\":\"$name\"" || true)
            echo "$name: $(grep -c '"hit"' <<<"$tasks_of") met, $(grep -c '"miss"' <<<"$tasks_of") missed"
        done
        berth "${watched[@]}" history --json --limit 1000 >"$out/$policy-history.json"
        docker rm -f short middle long loose none >/dev/null
        # Only one daemon decides at a time.
        kill "${pids[-2]}"
        wait "${pids[-2]}" || true
        history=$dir/$policy/history
    done
}

bench() {
    heading "berth bench deadline, $gpu"
    berth bench deadline --gpu "$gpu" --ground docker "${quick[@]}" \
        --save "$out/deadline-$gpu.json" --plots "$out/plots-$gpu" || failed+=(bench)
}

sim() {
    local profile
    for profile in h200 rtx3090; do
        heading "berth bench deadline on the simulated $profile"
        berth bench deadline --gpu sim --profile "$profile" --ground docker "${quick[@]}" \
            --save "$out/deadline-sim-$profile.json" || failed+=("sim $profile")
    done
}

# One that fails must not cost the others.
for part in "${parts[@]}"; do "$part"; done
heading "done"
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
