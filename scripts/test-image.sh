#!/usr/bin/env bash
# Makes the image the tests run, out of files of this machine: busybox, and the shared libraries a berth binary needs,
# so that the binary itself can be mounted in and started. No registry is asked.
#
#   test-image.sh BERTH_BINARY [TAG]     (DOCKER_HOST says which engine)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

binary=${1:?usage: test-image.sh BERTH_BINARY [TAG]}
tag=${2:-berth-test:local}
busybox=$(command -v busybox) || die "busybox not found: run scripts/setup-tests.sh"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# libraries FILE: the paths of its loader and libraries; empty for a static program.
libraries() { { ldd "$1" 2>/dev/null || true; } | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }'; }

mkdir -p "$root"/{bin,dev,etc,proc,run,sys,tmp,usr/local/bin,var}
chmod 1777 "$root/tmp"
cp "$busybox" "$root/bin/busybox"
for applet in $("$busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
# The simulated driver libraries built beside the binary are mounted in the same way, so theirs are needed too.
for file in "$binary" "$busybox" "$(dirname "$binary")"/libberth_sim_*.so; do
    for library in $(libraries "$file"); do
        install -D -m 755 "$(realpath "$library")" "$root$library"
    done
done
printf 'root:x:0:0:root:/:/bin/sh\n' >"$root/etc/passwd"

tar -C "$root" --owner=0 --group=0 --numeric-owner -c . |
    docker import --change 'CMD ["/bin/sh"]' --change 'ENV PATH=/bin:/usr/local/bin' - "$tag" >/dev/null
say "$tag"
