#!/usr/bin/env bash
# Fuzzes the decoder of node reports, guided by coverage, with the stable compiler. Builds into target/fuzz.
#
#   fuzz.sh [SECONDS]     default: 60; ends with what libFuzzer found, exit 0 if nothing
#
# What it learned stays in target/fuzz/corpus; an input that fails stays in target/fuzz/ and is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
seconds=${1:-60}
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || die "not a number of seconds: $seconds"

out=$PWD/target/fuzz
mkdir -p "$out/corpus"
coverage=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table)
# A target of its own: only then are build scripts left as they are.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="${coverage[*]} --cfg fuzzing -Cdebug-assertions -Ccodegen-units=1" CARGO_TARGET_DIR=$out \
    cargo build --locked --release --target "$host" --manifest-path fuzz/Cargo.toml
cd "$out"
exec "$out/$host/release/report" "$out/corpus" -max_len=4096 -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$out/failing-"
