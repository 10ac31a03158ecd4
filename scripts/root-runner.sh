#!/usr/bin/env bash
# Cargo's test runner for callers who are not root: the test program runs through sudo, in the caller's environment.
# Watching processes, cgroups and kernel events needs root; building does not, so cargo itself stays unprivileged.
exec sudo --preserve-env env "PATH=$PATH" "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "$@"
