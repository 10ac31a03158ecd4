#!/usr/bin/env bash
# Stops a build early, with one line that helps, when the compiler or the linker is missing.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_build_tools
