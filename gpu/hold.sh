#!/usr/bin/env bash
# What holding does on this machine's GPU, in real containers; run by gpu/run.sh. Results go to $BERTH_RESULTS.
#
#   hold.sh [OPTION]… [PART]…     PARTs are live and hold; default: both, in about 11 minutes on an H200
#
#   --gpu real|sim   on which GPU; sim is for trying this script out (default: real)
#   --rounds N       rounds of each cell (default: 3)
#   --alone N        of these, rounds with each means alone (default: 1)
#   --minutes N      begin no further round of a cell after this share of N minutes (default: 8, for all cells)
#   --cell CELL      only this cell; may be repeated (default: 10x13312, 20x8192, 20x5120)
#   --turns N        holds of each kind in part hold (default: 200)
#
#   live   berth bench live: unmanaged, fifo, paper, mps and each means alone; in the first cell also one by one
#   hold   berth bench hold: in containers, then in plain cgroups
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

gpu=real rounds=3 alone=1 minutes=8 turns=200
cells=() parts=()
while [ $# -gt 0 ]; do
    case "$1" in
        --gpu) gpu=${2:?--gpu needs real or sim} && shift ;;
        --rounds) rounds=${2:?--rounds needs a number} && shift ;;
        --alone) alone=${2:?--alone needs a number} && shift ;;
        --minutes) minutes=${2:?--minutes needs a number} && shift ;;
        --cell) cells+=("${2:?--cell needs a cell}") && shift ;;
        --turns) turns=${2:?--turns needs a number} && shift ;;
        live | hold) parts+=("$1") ;;
        *) die "unknown: $1; see the head of $0" ;;
    esac
    shift
done
[ ${#cells[@]} -gt 0 ] || cells=(10x13312 20x8192 20x5120)
[ ${#parts[@]} -gt 0 ] || parts=(live hold)
out=${BERTH_RESULTS:?run this by gpu/run.sh}
berth() { command berth --set "docker.socket=${DOCKER_HOST#unix://}" "$@"; }
heading() { printf '\n== %s (%s s since the start)\n' "$*" "$SECONDS"; }

failed=()

live() {
    local cell means seconds contenders one_by_one
    contenders=(--contender fifo --contender paper --contender mps)
    for means in gate lock freeze; do contenders+=(--contender "$means:$alone"); done
    one_by_one=(--contender one-by-one:1)
    # The first cell has most contenders, and takes about as long as the others together.
    seconds=$((minutes * 60 / 2))
    for cell in "${cells[@]}"; do
        heading "$cell"
        berth bench live --gpu "$gpu" --ground docker --cell "$cell" "${contenders[@]}" "${one_by_one[@]}" \
            --rounds "$rounds" \
            --within "${seconds}s" --save "$out/live-$cell.json" --logs "$out/logs" || failed+=("$cell")
        one_by_one=()
        seconds=$((minutes * 60 / 4))
    done
}

hold() {
    local ground measured
    # The driver locks and parks alike whatever its tenant is.
    measured=(--part docker --part cgroup --part lock --part gate --part park)
    for ground in docker cgroup; do
        heading "holding $ground"
        berth bench hold --gpu "$gpu" --ground "$ground" --turns "$turns" "${measured[@]}" \
            --save "$out/hold-$ground.json" || failed+=("hold-$ground")
        measured=(--part cgroup --part gate)
    done
}

# One that fails must not cost the others.
for part in "${parts[@]}"; do "$part"; done
heading "done"
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
