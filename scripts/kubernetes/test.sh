#!/usr/bin/env bash
# What `make test-kubernetes` runs: berth on a real API server, scheduler and, as root, kubelet, which are built once (scripts/kubernetes/build.sh).
#
# The tests start a cluster each, one after the other; a release build, since the time the placer takes is judged. They find what was
# prepared in their environment:
#   BERTH_TEST_KUBERNETES  1: the programs are in .tools/kubernetes/bin
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

mkdir -p .run
exec 9>.run/test-kubernetes.lock
flock -n 9 || die "another 'make test-kubernetes' is running in this directory"

# What tests that were killed have left.
leftovers() {
    local dir
    for dir in .run/kubernetes/*/; do
        if [ -d "$dir" ]; then scripts/kubernetes.sh stop "$dir" 9>&-; fi
    done
    rm -rf .run/kubernetes
}

need_build_tools
need curl "the tests ask the placer whether it is ready: apt-get install curl"
if [ "$(id -u)" -eq 0 ]; then
    PATH="$PATH:/usr/sbin:/sbin"
    need dockerd "a real node runs its pods on it: run scripts/setup-tests.sh"
    need busybox "the image of those pods is made of it: run scripts/setup-tests.sh"
fi
scripts/kubernetes.sh build
leftovers
trap leftovers EXIT
# The node's GPUs are simulated.
cargo build --locked --release -p berth-sim-cuda -p berth-sim-nvml 9>&-
BERTH_TEST_KUBERNETES=1 cargo test --locked --release -p berth --test kubernetes -- --test-threads=1 --nocapture "$@" 9>&-
