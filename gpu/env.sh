# shellcheck shell=bash
# Where things are on the GPU machine. Sourced by the scripts beside it.

# Fixed when packing: the engine's programs hold the path of their libraries.
base=/tmp/berth-gpu
# shellcheck disable=SC2034 # used by those
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
driver=${BERTH_GPU_DRIVER:-/usr/local/nvidia}

export PATH="$base/berth:$base/docker/bin:$PATH:$driver/bin"
export DOCKER_HOST="unix://$base/docker.sock"
export BERTH_GPU_IMAGE=berth-gpu:local

if [ -d "$driver/lib64" ]; then
    export LD_LIBRARY_PATH="$driver/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
