#!/usr/bin/env bash
# Takes the picture of the live view in the README: `berth demo` in a real terminal, some seconds into the play.
#
#   screenshot.sh [FILE]     default: docs/images/top.png
#
# Needs xvfb, xterm, imagemagick and fonts-dejavu-core, and a release build (make build). Uses Docker if it runs.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

SECONDS_IN=9
file=${1:-docs/images/top.png}
for tool in Xvfb xterm import; do
    command -v "$tool" >/dev/null || die "$tool not found: apt-get install xvfb xterm imagemagick fonts-dejavu-core"
done
berth=$(target_dir)/release/berth
[ -x "$berth" ] || die "$berth not found: make build"

mkdir -p "$(dirname "$file")"
display=:$((RANDOM % 400 + 100))
Xvfb "$display" -screen 0 1058x340x24 >/dev/null 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null' EXIT
export DISPLAY=$display
wait_until 10 xdpyinfo >/dev/null 2>&1 || sleep 1
# shellcheck disable=SC2086 # the options are words
xterm -geometry 130x19+0+0 -fa 'DejaVu Sans Mono' -fs 10 -bg '#101418' -fg '#d8dee9' -b 8 \
    -e "$berth" ${BERTH_OPTIONS:-} demo &
terminal=$!
sleep "$SECONDS_IN"
import -window root "$file"
wait "$terminal" || true
say "$file"
