#!/usr/bin/env bash
# The claim "two commands on a fresh machine", checked: `make demo` and `make test` from a fresh clone of HEAD, on a
# Debian 12 root file system that has never seen the project, in its own mount, pid, uts and ipc namespaces.
#
#   fresh-debian.sh [--demo-only | --test-only | --command "…"] [--user] [--keep] [--dir DIR]
#
#   --user     as a user with sudo instead of root
#   --keep     leave the tree for a look; it is named at the end
#   --dir DIR  where the tree goes (default /var/tmp); must not be on an overlay, Docker's data lives in it
#
# Needs root. Rust comes from this machine: its toolchain is mounted read-only at /opt/rust; the registry cache is new.
# Packages come from where this machine gets its own. The network is the machine's; nothing else is shared.
# Mounts and processes belong to the namespaces, so they end with the run however it ends.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
repo=$(cd "$(dirname "$0")/.." && pwd)

SUITE=bookworm
DEFAULT_MIRROR=http://deb.debian.org/debian
DEMO_LIMIT_S=1800
TEST_LIMIT_S=5400

usage() { sed -n 's/^# \{0,1\}//; 2,15p' "$0"; }

parse() {
    commands=(demo test)
    user=root keep=no parent=/var/tmp
    while [ $# -gt 0 ]; do
        case "$1" in
            --demo-only) commands=(demo) ;;
            --test-only) commands=(test) ;;
            --command) commands=("!${2:?--command needs a command}") && shift ;;
            --user) user=dev ;;
            --keep) keep=yes ;;
            --dir) parent=${2:?--dir needs a directory} && shift ;;
            -h | --help) usage && exit 0 ;;
            *) usage >&2 && die "unknown option '$1'" ;;
        esac
        shift
    done
}

# The mirror this machine uses for the suite, if it is a Debian of that suite; Debian's own otherwise.
mirror() {
    local own
    # shellcheck disable=SC2016 # apt-get expands these itself
    own=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk -v suite="$SUITE" '$2 == suite && $3 == "main" { print $1; exit }')
    echo "${own:-$DEFAULT_MIRROR}"
}

bootstrap() {
    if ! command -v debootstrap >/dev/null; then
        say "installing debootstrap: it makes the fresh root file system"
        apt-get -qq update
        apt-get -qq install -y --no-install-recommends debootstrap >/dev/null
    fi
    say "making a Debian $SUITE in $root"
    debootstrap --variant=minbase "$SUITE" "$root" "$(mirror)" >"$work/debootstrap.log" ||
        { tail -n 20 "$work/debootstrap.log" >&2; die "debootstrap failed; its last lines are above"; }
}

# How to reach the network, as this machine does: resolver, proxies and timeouts of apt, sources, own authorities.
copy_network_settings() {
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    echo "127.0.1.1 berth-fresh" >>"$root/etc/hosts"
    apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/00host" || true
    if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = "$SUITE" ]; then
        rm -f "$root/etc/apt/sources.list"
        local file
        for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.{list,sources}; do
            [ ! -f "$file" ] || cp --parents "$file" "$root"
        done
    fi
    if [ -d /usr/local/share/ca-certificates ]; then
        mkdir -p "$root/usr/local/share"
        cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
    fi
}

# What the README asks for: make, a C linker, and for a user sudo. Nothing else.
install_prerequisites() {
    local packages=(make gcc libc6-dev ca-certificates)
    [ "$user" = root ] || packages+=(sudo)
    say "installing ${packages[*]} in it"
    inside env DEBIAN_FRONTEND=noninteractive sh -c \
        "apt-get -qq update && apt-get -qq install -y --no-install-recommends ${packages[*]}" >"$work/apt.log" 2>&1 ||
        { tail -n 20 "$work/apt.log" >&2; die "apt-get failed in the fresh root; its last lines are above"; }
    if [ "$user" != root ]; then
        inside useradd --create-home --shell /bin/bash "$user"
        echo "$user ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$user"
    fi
}

clone() {
    if [ -n "$(git -C "$repo" status --porcelain)" ]; then
        say "note: the working tree has changes that are not committed; the clone is of HEAD, $(git -C "$repo" rev-parse --short HEAD)"
    fi
    git clone --quiet "file://$repo" "$root$home/berth"
    mkdir -p "$root$home/.cargo"
    local config="${CARGO_HOME:-$HOME/.cargo}/config.toml"
    [ ! -f "$config" ] || cp "$config" "$root$home/.cargo/"
    [ "$user" = root ] || inside chown -R "$user:" "$home/berth" "$home/.cargo"
}

# Runs in the namespaces, before the root is entered: everything mounted here is gone when the last process is.
mount_all() {
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    local node
    for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
        IFS=: read -r name major minor <<<"$node"
        mknod -m 666 "$root/dev/$name" c "$major" "$minor"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
    mount -t tmpfs shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s fd/0 "$root/dev/stdin"
    ln -s fd/1 "$root/dev/stdout"
    ln -s fd/2 "$root/dev/stderr"
    mount -t tmpfs -o mode=755 run "$root/run"
    mkdir -p "$root/opt/rust"
    mount --bind "$sysroot" "$root/opt/rust"
    mount -o remount,bind,ro "$root/opt/rust"
    hostname berth-fresh
    # pivot_root, not chroot: runc wants a root that is a mount, and nothing of the machine's files stays in reach.
    cd "$root"
    pivot_root . mnt
    umount -l mnt
}

# inside COMMAND…: as root in the fresh system, with an environment that names only how to reach the network.
inside() {
    local keep_env=() name
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY CARGO_HTTP_CAINFO CARGO_NET_RETRY TERM; do
        [ -z "${!name:-}" ] || keep_env+=("$name=${!name}")
    done
    export root sysroot
    export -f mount_all
    unshare --mount --pid --fork --kill-child --uts --ipc bash -euc 'mount_all; exec "$@"' inside \
        /usr/bin/env -i HOME=/root "PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        "${keep_env[@]}" "$@"
}

# as_user LIMIT_S COMMAND: a shell line in the clone. No terminal, no input: nothing may ask.
as_user() {
    local line="cd $home/berth && export HOME=$home CARGO_HOME=$home/.cargo && $2"
    if [ "$user" = root ]; then
        inside timeout --kill-after=60 "$1" bash -c "$line" </dev/null
    else
        inside timeout --kill-after=60 "$1" setpriv --reuid "$user" --regid "$user" --init-groups bash -c "$line" </dev/null
    fi
}

run_one() {
    case "$1" in
        demo) as_user "$DEMO_LIMIT_S" "make demo" ;;
        test) as_user "$TEST_LIMIT_S" "make test" ;;
        !*) as_user "$TEST_LIMIT_S" "${1#!}" ;;
    esac
}

teardown() {
    local status=$?
    trap - EXIT
    if [ "$keep" = yes ]; then
        say "kept: $work"
    else
        [ -z "$(mounts_under "$work")" ] || die "mounts are left under $work; not deleting it"
        rm -rf --one-file-system "$work"
    fi
    exit "$status"
}

main() {
    parse "$@"
    [ "$(id -u)" -eq 0 ] || die "needs root: it makes namespaces and a root file system"
    need_build_tools
    sysroot=$(cd "$repo" && rustc --print sysroot)
    sysroot=$(realpath "$sysroot")
    [ "$sysroot" != /usr ] || die "rustc comes from /usr; a toolchain with a directory of its own is needed (rustup)"
    home=/root
    [ "$user" = root ] || home=/home/$user
    work=$(mktemp -d "$parent/berth-fresh.XXXXXX")
    root=$work/root
    trap teardown EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM

    bootstrap
    copy_network_settings
    install_prerequisites
    clone
    local command begin failed=no
    for command in "${commands[@]}"; do
        printf '\n##### %s, as %s\n' "${command#!}" "$user"
        begin=$SECONDS
        if run_one "$command"; then
            verdicts+=("passed: ${command#!} ($((SECONDS - begin)) s)")
        else
            verdicts+=("FAILED: ${command#!} (exit $?, $((SECONDS - begin)) s)")
            failed=yes
        fi
    done
    printf '\nfresh Debian %s, %s, commit %s:\n' "$(cat "$root/etc/debian_version")" "$(uname -sr)" "$(git -C "$repo" rev-parse --short HEAD)"
    printf '  %s\n' "${verdicts[@]}"
    [ "$failed" = no ]
}

verdicts=()
main "$@"
