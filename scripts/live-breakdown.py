#!/usr/bin/env python3
"""Where the time of `berth bench live --logs DIR` went, run by run, from what the tenants wrote themselves.

    live-breakdown.py DIR     DIR holds the .jsonl files; unpack logs.tar.xz of a kept run first

For each run of a cell: seconds until the first launch, seconds kernels took added up, milliseconds between the end of one
kernel and the next launch (negative: two ran at once), seconds after the last kernel. Runs are in the order they were made.
"""
import collections
import json
import pathlib
import re
import sys


def runs_of(files):
    """Lines of each tenant's n-th process, by n."""
    runs = collections.defaultdict(list)
    for file in files:
        processes = {}
        for line in file.read_text().splitlines():
            event = json.loads(line)
            processes.setdefault((event["pid"]), []).append(event)
        for number, lines in enumerate(processes.values()):
            runs[number].append(lines)
    return runs


def kernel(lines):
    """From the return of the first launch to the end of the kernel phase."""
    launched = next(e["mono_ns"] for e in lines if e.get("moment") == "first_launch" and e["edge"] == "end")
    done = next(e["mono_ns"] for e in lines if e.get("phase") == "kernel" and e["edge"] == "end")
    return launched, done


def main(directory):
    cells = collections.defaultdict(list)
    for file in sorted(pathlib.Path(directory).glob("*-t*.jsonl")):
        cells[int(re.search(r"-n(\d+)-t", file.name)[1])].append(file)
    for size, files in sorted(cells.items(), reverse=True):
        for number, tenants in sorted(runs_of(files).items()):
            began = min(lines[0]["mono_ns"] for lines in tenants)
            ended = max(lines[-1]["mono_ns"] for lines in tenants)
            kernels = sorted(kernel(lines) for lines in tenants)
            between = sorted((b[0] - a[1]) / 1e6 for a, b in zip(kernels, kernels[1:]))
            print(
                f"{len(tenants)} x {size} run {number}: first launch after {(kernels[0][0] - began) / 1e9:.2f} s, "
                f"kernels {sum(done - launched for launched, done in kernels) / 1e9:.2f} s, "
                f"between {between[0]:.1f} to {between[-1]:.1f} ms, "
                f"after the last {(ended - max(done for _, done in kernels)) / 1e9:.2f} s"
            )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
