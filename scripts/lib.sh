# shellcheck shell=bash
# Shared by the scripts beside it: messages, root, tools. Sourced, never run.

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# as_root COMMAND…: runs it as root, through sudo when the caller is not.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "'$1' needs root, and there is no sudo"
    fi
}

# need TOOL WHY: stops with one line that says what to install.
need() {
    command -v "$1" >/dev/null || die "$1 not found: $2"
}

need_build_tools() {
    need cargo "install Rust, https://rustup.rs"
    need cc "install a C linker, on Debian and Ubuntu: apt-get install gcc"
}

# target_dir: where cargo builds to; CARGO_TARGET_DIR, CARGO_BUILD_TARGET_DIR and cargo's configuration may move it.
target_dir() {
    local dir
    dir=$(cargo metadata --locked --offline --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)
    [ -n "$dir" ] || die "cargo metadata names no target directory"
    printf '%s\n' "$dir"
}

# mounts_under DIR: the mount points below it, deepest first.
mounts_under() {
    awk -v dir="$1/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r
}

# wait_until SECONDS COMMAND…: polls until the command succeeds; fails when the time is up.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.1
    done
}
