#!/usr/bin/env bash
# Runs the property tests over and over, each time with other random cases; `make test` always has the same ones.
#
#   soak.sh [ROUNDS]     default: 20; stops at the first failure, which prints the seed that shows it again
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
rounds=${1:-20}
[[ "$rounds" =~ ^[1-9][0-9]*$ ]] || die "not a number of rounds: $rounds"

packages=()
while read -r manifest; do
    packages+=(--package "$(basename "$(dirname "$manifest")")")
done < <(grep --files-with-matches '^proptest' crates/*/Cargo.toml)
for ((round = 1; round <= rounds; round++)); do
    seed=$((RANDOM << 30 | RANDOM << 15 | RANDOM))
    echo "=== round $round of $rounds: PROPTEST_RNG_SEED=$seed"
    PROPTEST_RNG_SEED=$seed PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 \
        cargo test --locked --quiet --lib --bins "${packages[@]}" -- --test-threads=2 ||
        die "round $round: show it again with PROPTEST_RNG_SEED=$seed"
done
