#!/usr/bin/env bash
# Puts what `make build` has made where the units and the settings look for it, below DESTDIR if one is given. For `make install`, and for those who
# make a package of it. Starts nothing and enables nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

root=${1:-}
built=$(target_dir)/release
[ -x "$built/berth" ] || die "no $built/berth: run make build"

install -D -m 755 "$built/berth" "$root/usr/bin/berth"
# Mounted into tenants that take part at the level of kernels; each may be another user.
if [ -e "$built/libberth_shim.so" ]; then
    install -D -m 755 "$built/libberth_shim.so" "$root/usr/lib/berth/libberth_shim.so.new"
    # Those that have it mounted keep the file they began with.
    mv "$root/usr/lib/berth/libberth_shim.so.new" "$root/usr/lib/berth/libberth_shim.so"
fi
for unit in packaging/systemd/*.service; do
    install -D -m 644 "$unit" "$root/lib/systemd/system/$(basename "$unit")"
done
say "installed into $root/usr"
