#!/usr/bin/env bash
# One measured run on a GPU machine: engine up, the command, engine down. Says on what it ran.
#
#   run.sh [--plain] [--out DIR] [--name NAME] COMMAND…
#
# --plain: without an engine, for commands that need none; target/gpu/docker.tar.xz need not be there.
# DIR (default docs/results/<date>-<name>) gets machine.txt, command.txt and log.txt; the command finds it as
# $BERTH_RESULTS, and berth, docker and gpu/container.sh on its PATH. Exits as the command does.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
# shellcheck source=gpu/env.sh
. "$(dirname "$0")/env.sh"

out='' name='' up=()
while [ $# -gt 0 ]; do
    case "$1" in
        --plain) up=(--plain) && shift ;;
        --out) out=${2:?--out needs a directory} && shift 2 ;;
        --name) name=${2:?--name needs a name} && shift 2 ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || die "usage: run.sh [--plain] [--out DIR] [--name NAME] COMMAND…"
out=${out:-$repo/docs/results/$(date -u +%F)-${name:-$(basename "$1")}}
mkdir -p "$out"
BERTH_RESULTS=$(cd "$out" && pwd)
export BERTH_RESULTS

machine() {
    echo "date: $(date -u +%FT%TZ)"
    echo "kernel: $(uname -srm)"
    echo "cpus: $(nproc), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    echo "memory_kib: $(awk '/^MemTotal/ { print $2 }' /proc/meminfo)"
    echo "cgroup: $(stat -fc %T /sys/fs/cgroup)"
    echo "glibc: $(getconf GNU_LIBC_VERSION)"
    [ ${#up[@]} -gt 0 ] || echo "docker: $(docker version --format '{{.Server.Version}}')"
    echo "commit: $(cat "$repo/target/gpu/commit")"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv
    else
        echo "gpu: no nvidia-smi on this machine"
    fi
}

trap '"$repo/gpu/down.sh"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$repo/gpu/up.sh" "${up[@]}"
machine | tee "$out/machine.txt"
printf '%q ' "$@" >"$out/command.txt"
PATH="$repo/gpu:$PATH" "$@" 2>&1 | tee "$out/log.txt"
