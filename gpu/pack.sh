#!/usr/bin/env bash
# Packs what a GPU machine without network, Rust or Docker needs, into target/gpu/ (build and run it here, carry it there):
#
#   target/gpu/docker.tar.xz   Docker Engine of the installed Debian packages, with its libraries except glibc
#   target/gpu/berth.tar.xz    release build of berth, of its library for programs and of the simulated driver libraries, tests for gpu/driver.sh
#
#   pack.sh [--docker-only | --berth-only]
#
# target/gpu/ is in the repository wherever cargo builds to: it travels with it.
#
# glibc stays behind on purpose: an engine re-executes itself by /proc/self/exe, so it must start through the loader of
# the machine it runs on; up.sh checks that one is new enough. The other libraries are found by a path written into the
# programs, since runc starts a container's first process with an empty environment and from a nameless copy of itself.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

LIMIT_MIB=45
PROGRAMS=(/usr/sbin/dockerd /usr/bin/docker /usr/bin/containerd /usr/bin/containerd-shim-runc-v2 /usr/sbin/runc /usr/bin/docker-init)
out=$PWD/target/gpu
# shellcheck source=gpu/env.sh
. gpu/env.sh

# Libraries of a program that are not part of glibc or of the kernel.
extra_libraries() {
    ldd "$1" 2>/dev/null | awk '$2 == "=>" { print $3 }' | grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' || true
}

# The newest glibc any of the files asks for; objdump fails on a static one, which asks for none.
newest_glibc() {
    { objdump -T "$@" 2>/dev/null || true; } | grep -oE 'GLIBC_2\.[0-9]+' | sed 's/GLIBC_//' | sort -uV | tail -n 1
}

pack_docker() {
    if ! command -v patchelf >/dev/null; then
        say "installing patchelf: it writes the path of the packed libraries into the engine's programs"
        as_root apt-get -qq install -y --no-install-recommends patchelf >/dev/null
    fi
    local program library tree
    tree=$(mktemp -d)
    mkdir -p "$tree/bin" "$tree/lib" "$out"
    for program in "${PROGRAMS[@]}"; do
        [ -x "$program" ] || die "$program not found: run scripts/setup-tests.sh, or install docker.io"
        install -m 755 "$program" "$tree/bin/"
        [ -n "$(extra_libraries "$program")" ] || continue
        # an old-style rpath: it also holds for the libraries of the libraries
        patchelf --force-rpath --set-rpath "$base/docker/lib" "$tree/bin/$(basename "$program")"
        for library in $(extra_libraries "$program"); do
            install -m 644 "$library" "$tree/lib/"
        done
    done
    newest_glibc "$tree"/bin/* "$tree"/lib/* >"$tree/glibc"
    tar -C "$tree" --owner=0 --group=0 -c . | xz -9 -T2 >"$out/docker.tar.xz"
    rm -rf "$tree"
    local mib=$(($(stat -c %s "$out/docker.tar.xz") / 1024 / 1024))
    say "target/gpu/docker.tar.xz: $mib MiB"
    [ "$mib" -lt "$LIMIT_MIB" ] || die "docker.tar.xz is $mib MiB; at most $LIMIT_MIB travel"
}

pack_berth() {
    need_build_tools
    cargo build --locked --release -p berth -p berth-sim-cuda -p berth-sim-nvml
    # As it is shipped.
    scripts/shim.sh
    local built tests tree
    built=$(target_dir)/release
    mkdir -p "$out"
    tests=$(tests_of_host)
    [ -x "$tests" ] || die "cargo did not say where the tests of berth-host are"
    tree=$(mktemp -d)
    install -m 755 --strip "$built/berth" "$built"/libberth_{shim,sim_cuda,sim_nvml}.so "$tree/"
    install -m 755 --strip "$tests" "$tree/berth-host-tests"
    tar -C "$tree" --owner=0 --group=0 -c . | xz -6 -T2 >"$out/berth.tar.xz"
    rm -rf "$tree"
    git rev-parse HEAD >"$out/commit"
    say "target/gpu/berth.tar.xz: $(du -m "$out/berth.tar.xz" | cut -f1) MiB"
}

# The tests of one crate that need hardware, as the one program cargo makes of them.
tests_of_host() {
    cargo test --locked -p berth-host --lib --no-run --message-format=json |
        sed -n 's/.*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

[ "${1:-}" = --berth-only ] || pack_docker
[ "${1:-}" = --docker-only ] || pack_berth
