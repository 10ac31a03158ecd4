#!/usr/bin/env bash
# Lock and park on this machine's GPU, against real processes with real memory; run by gpu/run.sh:
#
#   gpu/run.sh --name driver driver.sh [TEST…]     default: all of them
#
# Runs the tests of berth-host that need hardware, packed by `pack.sh`. They print what they measure.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
# shellcheck source=gpu/env.sh
. "$(dirname "$0")/env.sh"

tests=$base/berth/berth-host-tests
[ -x "$tests" ] || die "$tests not found: run gpu/pack.sh where berth is built"
[ $# -gt 0 ] || set -- driver::tests::real_gpu
# One after the other: they measure, and want the GPU for themselves.
BERTH_TEST_GPU=1 "$tests" --test-threads=1 --nocapture "$@"
