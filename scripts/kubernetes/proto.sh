#!/usr/bin/env bash
# Makes crates/berth-cluster/src/kubernetes/device_plugin/v1beta1.rs from its .proto, with compilers that are crates: no protoc.
#
# Run by hand when the .proto changes. What the tests alone call (the kubelet's side) is compiled for them alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

PROTO="$PWD/crates/berth-cluster/proto"
MADE="$PWD/crates/berth-cluster/src/kubernetes/device_plugin/v1beta1.rs"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cat >"$work/Cargo.toml" <<END
[package]
name = "proto"
edition = "2024"
rust-version = "1.95"
[workspace]
[dependencies]
protox = "0.10"
tonic-prost-build = "0.14"
END
cat >"$work/src/main.rs" <<END
fn main() {
    let set = protox::compile(["device_plugin_v1beta1.proto"], ["$PROTO"]).unwrap();
    tonic_prost_build::configure().out_dir("$work").compile_fds(set).unwrap();
}
END
cargo run --quiet --manifest-path "$work/Cargo.toml" --target-dir "$work/target"
{
    echo "//! Messages and services of the kubelet's interface for device plugins: made from \`proto/device_plugin_v1beta1.proto\`, not by hand."
    sed -e 1d -e 's/^pub mod \(registration_server\|device_plugin_client\) {/#[cfg(test)]\n&/' "$work/v1beta1.rs"
} >"$MADE"
say "$MADE is made"
