#!/usr/bin/env bash
# Starts the packed Docker Engine on a GPU machine and imports an image that is a window on the machine's own /usr.
# No network is set up, nothing is installed, no setting of the card is read or changed. Undone by down.sh.
#
#   up.sh [--plain]     --plain: berth alone, without an engine
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
# shellcheck source=gpu/env.sh
. "$(dirname "$0")/env.sh"

READY_S=60
[ "$(id -u)" -eq 0 ] || die "needs root: a container engine runs as root"

plain=no
[ "${1:-}" != --plain ] || plain=yes

# unpack NAME…
unpack() {
    local name archive
    for name in "$@"; do
        archive="$repo/target/gpu/$name.tar.xz"
        [ -f "$archive" ] || die "$archive not found: run gpu/pack.sh where Docker is installed, and carry target/gpu here"
        mkdir -p "$base/$name"
        if command -v xz >/dev/null; then
            tar -C "$base/$name" -xJf "$archive"
        else
            python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$archive" "$base/$name"
        fi
    done
}

engine_fits() {
    local needed found
    needed=$(cat "$base/docker/glibc")
    found=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
    [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ] ||
        die "the packed engine needs glibc $needed, this machine has $found: pack on an older distribution"
}

containerd_answers() { [ -S "$base/containerd.sock" ]; }
engine_answers() { docker version >/dev/null 2>&1; }

start() {
    # Each leads a session of its own, so that the end of this script is not theirs.
    setsid containerd --root "$base/containerd" --state "$base/containerd-run" \
        --address "$base/containerd.sock" --log-level warn </dev/null >"$base/containerd.log" 2>&1 &
    echo $! >"$base/containerd.pid"
    wait_until "$READY_S" containerd_answers || { tail -n 20 "$base/containerd.log" >&2; die "containerd did not start"; }
    setsid dockerd --containerd "$base/containerd.sock" \
        --data-root "$base/data" --exec-root "$base/exec" --pidfile "$base/dockerd.pid" --host "$DOCKER_HOST" \
        --bridge none --iptables=false --ip6tables=false </dev/null >"$base/dockerd.log" 2>&1 &
    wait_until "$READY_S" engine_answers || { tail -n 20 "$base/dockerd.log" >&2; die "dockerd did not start"; }
}

# An almost empty root: directories to mount on, links into /usr as the machine has them, and the loader's files.
image() {
    local root name
    root=$(mktemp -d)
    mkdir -p "$root"/{berth,dev,etc,opt,proc,run,sys,tmp,usr,var}
    chmod 1777 "$root/tmp"
    for name in bin lib lib32 lib64 sbin; do
        if [ -L "/$name" ]; then
            cp -P "/$name" "$root/$name"
        elif [ -d "/$name" ]; then
            mkdir "$root/$name"
        fi
    done
    for name in alternatives group ld.so.cache ld.so.conf ld.so.conf.d nsswitch.conf passwd; do
        [ ! -e "/etc/$name" ] || cp -r --no-dereference "/etc/$name" "$root/etc/"
    done
    tar -C "$root" -c . | docker import --change 'CMD ["/bin/sh"]' - "$BERTH_GPU_IMAGE" >/dev/null
    rm -rf "$root"
}

if [ -e "$base/dockerd.pid" ]; then
    die "$base/dockerd.pid is there: already up, or run gpu/down.sh first"
fi
unpack berth
if [ "$plain" = yes ]; then
    say "up: berth, without an engine"
    exit 0
fi
unpack docker
engine_fits
start
image
say "up: DOCKER_HOST=$DOCKER_HOST, image $BERTH_GPU_IMAGE"
