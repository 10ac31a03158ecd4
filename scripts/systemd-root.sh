#!/usr/bin/env bash
# Boots systemd in a root of its own that has berth installed as its package would: /usr/bin/berth, its units, its
# settings. /usr is this machine's, everything else is empty and in memory; it is gone with the last process.
#
#   systemd-root.sh system|user BERTH SETTINGS ROOT CGROUP SHARED…
#
#   system   systemd is process 1 of its own pid namespace, as on a host that has booted
#   user     root's service manager in the machine's pid namespace: process events and probes are offered only there
#
#   ROOT     an empty directory
#   CGROUP   a cgroup v2 directory, its own; the caller ends and removes what is in it
#   SHARED   files and directories that are at the same path inside
#
# Needs root. Does not return before systemd ends. Nothing of the machine's own units is enabled in it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
repo=$(cd "$(dirname "$0")/.." && pwd)

[ $# -ge 5 ] || die "usage: $(basename "$0") system|user BERTH SETTINGS ROOT CGROUP SHARED…"
kind=$1 berth=$(realpath "$2") settings=$3 root=$4 cgroup=$5
shift 5
shared=("$berth" "$@")
units=$repo/packaging/systemd

# What an installation consists of.
install_berth() {
    : >"$root/.usr/upper/bin/berth"
    mkdir -p "$root/etc/berth" "$root/etc/systemd/system" "$root/etc/systemd/user"
    cp "$settings" "$root/etc/berth/berth.toml"
    cp "$units"/*.service "$root/etc/systemd/$kind/"
}

# Services of the early boot that would reach beyond this root: one empties /tmp, the other reads the kernel's audit.
mask() {
    local unit
    for unit in systemd-tmpfiles-setup.service systemd-tmpfiles-clean.timer systemd-journald-audit.socket; do
        ln -s /dev/null "$root/etc/systemd/system/$unit"
    done
    printf '[Journal]\nAudit=\nReadKMsg=no\n' >"$root/etc/systemd/journald.conf"
    # A manager of a user asks these for variables; they are the machine's.
    mkdir -p "$root/etc/systemd/user-environment-generators"
    for unit in /usr/lib/systemd/user-environment-generators/*; do
        [ ! -e "$unit" ] || ln -s /dev/null "$root/etc/systemd/user-environment-generators/$(basename "$unit")"
    done
}

lay_out() {
    mount -t tmpfs -o mode=755 root "$root"
    mkdir -p "$root"/{dev,etc,mnt,proc,root,run,sys,tmp,usr,var/tmp} "$root"/.usr/{upper/bin,work}
    ln -s ../run "$root/var/run"
    local link
    for link in bin sbin lib lib64; do
        ln -s "usr/$link" "$root/$link"
    done
    cp /etc/{passwd,group,nsswitch.conf,ld.so.cache} "$root/etc/"
    # Without one it would be a first boot, which enables what every package of the machine recommends.
    tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
    install_berth
    mask
    mount -t overlay -o "lowerdir=/usr,upperdir=$root/.usr/upper,workdir=$root/.usr/work" usr "$root/usr"
    # No link: a unit with a /tmp or /home of its own would not find what it leads to there.
    mount --bind "$berth" "$root/usr/bin/berth"
}

# Read-only where a service of the early boot would set up the machine: then systemd leaves it alone.
mount_kernel() {
    mount -t proc proc "$root/proc"
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    local node
    for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9; do
        IFS=: read -r name major minor <<<"$node"
        mknod -m 666 "$root/dev/$name" c "$major" "$minor"
    done
    mkdir "$root"/dev/{pts,shm}
    ln -s pts/ptmx "$root/dev/ptmx"
    mount -t tmpfs -o mode=755 run "$root/run"
}

# Of the shared, what is in memory inside gets a place to be mounted at.
share() {
    local path
    for path in "${shared[@]}"; do
        if [ -d "$path" ]; then
            mkdir -p "$root$path"
        else
            mkdir -p "$root$(dirname "$path")"
            [ -e "$root$path" ] || : >"$root$path"
        fi
        mount --bind "$path" "$root$path"
    done
}

boot() {
    mount --make-rprivate /
    lay_out
    mount_kernel
    share
    cd "$root"
    pivot_root . mnt
    umount -l mnt
    local env=(PATH=/usr/sbin:/usr/bin:/sbin:/bin)
    if [ "$kind" = system ]; then
        hostname berth-systemd
        exec env -i container=berth "${env[@]}" /lib/systemd/systemd --unit=sysinit.target
    fi
    # What a user's manager looks for, to know that the machine runs systemd.
    mkdir -p /run/systemd/system
    exec env -i HOME=/root XDG_RUNTIME_DIR=/run "${env[@]}" /lib/systemd/systemd --user --unit=basic.target
}

[ "$(id -u)" -eq 0 ] || die "needs root: it makes namespaces"
[ -x /lib/systemd/systemd ] || die "/lib/systemd/systemd not found: install systemd"
echo $$ >"$cgroup/cgroup.procs"
# The functions are given to the shell inside the namespaces as text, with what they use.
inside="set -euo pipefail; $(declare -p kind berth settings root units shared); $(declare -f); boot"
case "$kind" in
    system) exec unshare --mount --pid --fork --kill-child --uts --ipc --cgroup bash -c "$inside" ;;
    user) exec unshare --mount bash -c "$inside" ;;
    *) die "system or user, not '$kind'" ;;
esac
