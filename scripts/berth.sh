#!/usr/bin/env bash
# Runs the release build of berth, wherever cargo puts it: berth.sh COMMAND…
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
berth=$(target_dir)/release/berth
[ -x "$berth" ] || die "$berth not found: make build"
exec "$berth" "$@"
