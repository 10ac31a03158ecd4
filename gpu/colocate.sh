#!/usr/bin/env bash
# Inside this machine's GPU: a server beside a trainer in every way to share it, and what a launch costs; run by gpu/run.sh.
# Results go to $BERTH_RESULTS.
#
#   colocate.sh [OPTION]… [PART]…     default: all parts in this order; what the time does not allow is left out and said
#
#   --gpu real|sim   on which GPU; sim is for trying this script out, without PyTorch (default: real)
#   --minutes N      begin no further part after this time (default: 60; a pair takes 4)
#   --seconds N      of each window (default: 6)
#   --rounds N       windows in each mode (default: 3)
#
#   vary       each of the pairs by the library alone, with other settings of [kernels] in one run: what to choose them by
#   resnet     berth bench colocate: ResNet-50 beside its training, at 200 requests/s
#   bert       BERT-base beside GPT-2's training
#   long       ResNet-50 beside matrix products of 20 ms
#   launch     berth bench launch: the cost of a launch bare and with berth's library
#   same       berth bench launch --torch: a training's rate with the library, and whether it computes the same
#   policies   the first pair under berth's other policies
#   loads      the first pair at 50 and 400 requests/s
#   built_in   the pairs that need no PyTorch, at 200 requests/s
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
# shellcheck source=gpu/env.sh
. "$(dirname "$0")/env.sh"

gpu=real minutes=60 seconds=6 rounds=3
parts=()
while [ $# -gt 0 ]; do
    case "$1" in
        --gpu) gpu=${2:?--gpu needs real or sim} && shift ;;
        --minutes) minutes=${2:?--minutes needs a number} && shift ;;
        --seconds) seconds=${2:?--seconds needs a number} && shift ;;
        --rounds) rounds=${2:?--rounds needs a number} && shift ;;
        vary | launch | resnet | bert | long | same | policies | loads | built_in) parts+=("$1") ;;
        *) die "unknown: $1; see the head of $0" ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(resnet bert long launch same policies loads built_in)
out=${BERTH_RESULTS:?run this by gpu/run.sh}
heading() { printf '\n== %s (%s s since the start)\n' "$*" "$SECONDS"; }
# The programs are read where they are; nothing is written beside them.
export PYTHONDONTWRITEBYTECODE=1

failed=()

# colocate NAME OPTION…
colocate() {
    local name=$1
    shift
    berth bench colocate --gpu "$gpu" --torch "$repo/gpu/torch" --seconds "$seconds" --rounds "$rounds" "$@" \
        --save "$out/colocate-$name.json" --plots "$out/plots-$name" || failed+=("$name")
}

others=(--mode time-slicing --mode mps --mode mps-priority --mode mps-half)
berth=(--mode berth-slo --mode berth-mps-slo --mode berth-mps-hybrid)

launch() { berth bench launch --gpu "$gpu" --save "$out/launch.json" || failed+=(launch); }
# Short windows: it is differences that are looked for, side by side.
vary() {
    local pair settings=()
    for setting in 'kernels.yield_slice=200us kernels.lead_slice=8ms' \
        'kernels.yield_slice=300us kernels.lead_slice=8ms' 'kernels.grain=100us' 'kernels.grain=300us'; do
        settings+=(--vary "$setting")
    done
    for pair in torch-resnet torch-long torch-bert-gpt2; do
        berth bench colocate --gpu "$gpu" --torch "$repo/gpu/torch" --seconds 3 --rounds 2 --pair "$pair" --load medium \
            --mode links "${settings[@]}" --save "$out/vary-$pair.json" || failed+=("vary $pair")
    done
}
resnet() { colocate resnet --pair torch-resnet --load medium "${others[@]}" "${berth[@]}"; }
bert() { colocate bert --pair torch-bert-gpt2 --load medium "${others[@]}" "${berth[@]}"; }
long() { colocate long --pair torch-long --load medium "${others[@]}" "${berth[@]}"; }
same() {
    berth bench launch --gpu "$gpu" --rounds 3 --batches 50 --torch "$repo/gpu/torch" --seconds "$seconds" \
        --save "$out/launch-torch.json" || failed+=(same)
}
policies() { colocate policies --pair torch-resnet --load medium --mode berth-mps-slo --mode berth-mps-hybrid --mode berth-mps-jct; }
loads() { colocate loads --pair torch-resnet --load light --load heavy --mode time-slicing --mode mps-priority "${berth[@]}"; }
built_in() { colocate builtin --pair short --pair long --load medium "${others[@]}" "${berth[@]}"; }

# One that fails must not cost the others.
for part in "${parts[@]}"; do
    if [ "$SECONDS" -ge $((minutes * 60)) ]; then
        heading "$part is left out: $minutes minutes are over"
        continue
    fi
    heading "$part"
    "$part"
done
heading "done"
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
