#!/usr/bin/env bash
# What `make test` runs: set-up, a Docker engine, then every check of the repository. Stops at the first failure.
#
# The tests find what was prepared in their environment:
#   BERTH_TEST_DOCKER    address of a Docker engine they may use (unix:///…)
#   BERTH_TEST_IMAGE     an image on it that can run a berth binary mounted into it
#   BERTH_TEST_REQUIRED  1: everything is there, so a test that finds something missing fails instead of skipping;
#                        prepared: what this script prepares is there, what only the kernel of a host offers is not
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
PATH="$PWD/.tools/bin:$PATH:/usr/sbin:/sbin"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
# The same random cases each time: a failure is then of the change at hand. `make soak` draws others.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-20261116}"

mkdir -p .run
exec 9>.run/test.lock
flock -n 9 || die "another 'make test' is running in this directory"

own_engine=no
step_name=none
steps=0
finish() {
    local status=$?
    trap - EXIT
    if [ "$own_engine" = yes ]; then
        scripts/docker-instance.sh stop .run/docker 9>&- || status=1
    elif [ -n "${BERTH_TEST_IMAGE:-}" ]; then
        docker -H "$BERTH_TEST_DOCKER" image rm --force "$BERTH_TEST_IMAGE" >/dev/null || status=1
    fi
    if [ "$status" -eq 0 ]; then
        printf '\nmake test: passed, %d steps in %d s%s\n' "$steps" "$SECONDS" "${skipped:+; SKIPPED: $skipped}"
    else
        printf '\nmake test: FAILED at "%s" after %d s\n' "$step_name" "$SECONDS"
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step NAME COMMAND…
step() {
    step_name=$1
    shift
    local begin=$SECONDS
    printf '\n=== %s\n' "$step_name"
    "$@"
    printf -- '--- %s: %d s\n' "$step_name" "$((SECONDS - begin))"
    steps=$((steps + 1))
}

usable_engine() {
    local host
    for host in "${DOCKER_HOST:-}" unix:///var/run/docker.sock; do
        if [ -n "$host" ] && docker -H "$host" version >/dev/null 2>&1; then
            echo "$host"
            return
        fi
    done
    return 1
}

engine() {
    if BERTH_TEST_DOCKER=$(usable_engine); then
        say "using the engine at $BERTH_TEST_DOCKER"
    else
        say "no engine answers: starting one of our own, its log is .run/docker/dockerd.log"
        own_engine=yes
        BERTH_TEST_DOCKER=$(scripts/docker-instance.sh start .run/docker 9>&-)
    fi
    export BERTH_TEST_DOCKER
}

image() {
    DOCKER_HOST=$BERTH_TEST_DOCKER scripts/test-image.sh "$(target_dir)/debug/berth" berth-test:local
    export BERTH_TEST_IMAGE=berth-test:local
}

# The advisories check of cargo-deny needs a database that is not in a package registry: see deny.toml.
dependencies() { cargo deny --offline --log-level error check --hide-inclusion-graph bans licenses sources; }

# For those who work on berth, so private items are in it and may be linked to.
documentation() {
    RUSTDOCFLAGS="-Dwarnings -Arustdoc::private-intra-doc-links" \
        cargo doc --locked --workspace --no-deps --document-private-items
}

# Process events and probes speak the host's pids: the kernel offers them in its first pid namespace only, whose number
# is fixed (PROC_PID_INIT_INO).
on_a_host() { [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ]; }

tests() {
    local required=1
    if ! on_a_host; then
        required=prepared
        skipped="process events and probes (not in the host's pid namespace)"
        say "SKIPPED: $skipped"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        local triple
        triple=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
        export "CARGO_TARGET_${triple}_RUNNER=$PWD/scripts/root-runner.sh"
    fi
    BERTH_TEST_REQUIRED=$required cargo test --locked --workspace --no-fail-fast 9>&-
}

# Every interleaving of the task table's sequence lock; a build of its own, since loom replaces the atomics.
memory_orders() {
    RUSTFLAGS="--cfg loom" cargo test --locked -p berth-proto --release --lib --target-dir "$(target_dir)/loom" -- loom |
        tee .run/loom.log
    grep -q '^test result: ok. [1-9]' .run/loom.log || die "no loom test ran: the model of the sequence lock is gone"
}

scripts_are_clean() { shellcheck -x scripts/*.sh scripts/kubernetes/*.sh gpu/*.sh packaging/*.sh .ci/run; }

# The library that goes into other people's images, as it is shipped: linked for old C libraries.
old_c_libraries() {
    scripts/shim.sh
    BERTH_TEST_SHIM=$(target_dir)/release/libberth_shim.so cargo test --locked -p berth-shim --test shim
}

need_build_tools
step "set-up" scripts/setup-tests.sh
step "fetch dependencies" cargo fetch --locked
step "formatting" cargo fmt --all --check
step "build" cargo build --locked --workspace --all-targets
step "clippy" cargo clippy --locked --workspace --all-targets -- -D warnings
step "documentation" documentation
step "dependencies" dependencies
step "scripts" scripts_are_clean
step "docker engine" engine
step "test image" image
step "tests" tests
step "memory orders (loom)" memory_orders
step "old C libraries" old_c_libraries
