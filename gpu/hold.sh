#!/usr/bin/env bash
# What holding does on this machine's GPU, in real containers; run by gpu/run.sh. Results go to $BERTH_RESULTS.
#
#   hold.sh [ROUNDS [CELL…]]     default: 3 rounds of 10x13312, 20x8192 and 20x5120
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"

out=${BERTH_RESULTS:?run this by gpu/run.sh}
rounds=${1:-3}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 10x13312 20x8192 20x5120
# shellcheck disable=SC2206 # a list of words
policies=(${BERTH_POLICIES:-fifo})
options=(--gpu real --ground docker --rounds "$rounds" --save "$out/live.json" --logs "$out/logs")
for cell in "$@"; do options+=(--cell "$cell"); done
for policy in "${policies[@]}"; do options+=(--policy "$policy"); done
berth --set "docker.socket=${DOCKER_HOST#unix://}" bench live "${options[@]}"
