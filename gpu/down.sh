#!/usr/bin/env bash
# Ends what up.sh started: containers, engine, mounts, files. Does nothing when nothing is up.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
# shellcheck source=gpu/env.sh
. "$(dirname "$0")/env.sh"

END_S=30

# end PROGRAM: by its pid file, if that pid still is the program.
end() {
    local pid
    pid=$(cat "$base/$1.pid" 2>/dev/null) || return 0
    is() { [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ]; }
    is_not() { ! is "$1"; }
    is "$1" || return 0
    kill "$pid"
    wait_until "$END_S" is_not "$1" || kill -9 "$pid"
}

if docker version >/dev/null 2>&1; then
    docker ps -aq | xargs -r docker rm -f >/dev/null
fi
end dockerd
end containerd
for mount in $(mounts_under "$base"); do
    umount -l "$mount"
done
rm -rf --one-file-system "$base"
