#!/usr/bin/env bash
# `docker run` for the image of up.sh: the machine's /usr and /opt read-only, its GPUs, its driver, and berth at /berth.
#
#   container.sh [OPTION of docker run]… -- COMMAND…
#
# Not --init: Docker would put its init into /sbin, which here is the machine's own, read-only.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
# shellcheck source=gpu/env.sh
. "$(dirname "$0")/env.sh"

options=(--network none -v "$base/berth:/berth:ro" -e "PATH=/berth:/usr/local/bin:/usr/bin:/bin:$driver/bin")
for directory in /usr /opt "$driver"; do
    [ ! -d "$directory" ] || options+=(-v "$directory:$directory:ro")
done
for directory in /bin /lib /lib32 /lib64 /sbin; do
    # only where they are not links into /usr
    [ -L "$directory" ] || [ ! -d "$directory" ] || options+=(-v "$directory:$directory:ro")
done
for device in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools; do
    [ ! -c "$device" ] || options+=(--device "$device")
done
[ ! -d "$driver/lib64" ] || options+=(-e "LD_LIBRARY_PATH=$driver/lib64")

while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
[ $# -gt 1 ] || die "usage: container.sh [OPTION of docker run]… -- COMMAND…"
shift
exec "${BERTH_GPU_DOCKER:-docker}" run "${options[@]}" "$BERTH_GPU_IMAGE" "$@"
