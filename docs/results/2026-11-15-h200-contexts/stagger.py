#!/usr/bin/env python3
"""How contexts come to be when k processes want one, all at once or at most N in the making at a time.

    BERTH=path/to/berth stagger.py SIZE TENANTS ROUNDS

Needs root, a GPU, and a cgroup v2 hierarchy (CGROUP, default /sys/fs/cgroup/stagger). Each tenant is `berth load --size SIZE`, a
product of SIZE x SIZE that fills no host arrays, in a cgroup of its own. The next one is started when one that was
started has its context ready. Each round goes through six ways:

    unmanaged  all at once, no daemon          fifo    all at once, kernels one at a time by berth's fifo
    alone+2    two in the making, no daemon    fifo+N  N in the making, kernels one at a time by fifo

A line a run, seconds from its start; in brackets, as a share of the unmanaged run before it:

    total, mean   the last process is gone; mean over the processes
    first launch, last kernel, kernels
                  the first kernel is submitted; the last is over; the sum of all from submission to end
    ctx first, last
                  the first and the last context are ready
    init, ctx     how long cuInit and making the context took, mean over the processes
"""
import json
import os
import statistics
import subprocess
import sys
import threading
import time

BERTH = os.environ.get("BERTH", "berth")
CGROUP = os.environ.get("CGROUP", "/sys/fs/cgroup/stagger")
WORK = "/tmp/stagger"
# name, contexts in the making at once (None: all), under berth's fifo
WAYS = [
    ("unmanaged", None, False),
    ("fifo", None, True),
    ("fifo+1", 1, True),
    ("fifo+2", 2, True),
    ("fifo+3", 3, True),
    ("alone+2", 2, False),
]


def start_daemon():
    settings = {
        "table.path": f"{WORK}/tasks",
        "hold.journal": f"{WORK}/holds",
        "hold.policy": "fifo",
        "docker.mode": "off",
    }
    command = [BERTH, "--socket", f"{WORK}/berth.sock"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with open(f"{WORK}/daemon.log", "w") as log:
        daemon = subprocess.Popen(command + ["daemon"], stderr=log)
    time.sleep(1.5)
    return daemon


def run_tenant(index, size, slots):
    """One process; gives its moments in nanoseconds, by name and edge, its exit among them."""
    if slots:
        slots.acquire()
    waiting = slots is not None
    moments = {}
    command = f"echo $$ > {CGROUP}/t{index}/cgroup.procs; exec setsid {BERTH} load --size {size}"
    process = subprocess.Popen(
        ["bash", "-c", command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    for line in process.stdout:
        event = json.loads(line)
        name = event.get("moment") or event.get("phase") or event["event"]
        moments[f"{name}.{event.get('edge', '')}"] = event["mono_ns"]
        if waiting and name == "context_ready":
            slots.release()
            waiting = False
    code = process.wait()
    moments["exit"] = time.monotonic_ns()
    if waiting:
        slots.release()
    assert code == 0, f"tenant {index} ended with {code}"
    return moments


def run(size, tenants, at_once):
    slots = threading.Semaphore(at_once) if at_once else None
    rows = [None] * tenants
    begin = time.monotonic_ns()

    def tenant(index):
        rows[index] = run_tenant(index, size, slots)

    threads = [threading.Thread(target=tenant, args=(index,)) for index in range(tenants)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(rows), "a tenant failed"

    def at(moment):
        return [(row[moment] - begin) / 1e9 for row in rows]

    def between(first, second):
        return [(row[second] - row[first]) / 1e9 for row in rows]

    return {
        "total": max(at("exit")),
        "mean": statistics.mean(at("exit")),
        "first launch": min(at("first_launch.end")),
        "last kernel": max(at("kernel.end")),
        "kernels": sum(between("first_launch.end", "kernel.end")),
        "ctx first": min(at("context_ready.end")),
        "ctx last": max(at("context_ready.end")),
        "init": statistics.mean(between("device_open.begin", "device_open.end")),
        "ctx": statistics.mean(between("device_open.end", "context_ready.end")),
    }


def show(name, x, base):
    print(
        f"{name} total {x['total']:.3f} ({x['total'] / base['total']:.3f})"
        f" mean {x['mean']:.3f} ({x['mean'] / base['mean']:.3f})"
        f" first launch {x['first launch']:.2f} last kernel {x['last kernel']:.2f} kernels {x['kernels']:.2f}"
        f" ctx first {x['ctx first']:.2f} last {x['ctx last']:.2f} init {x['init']:.3f} ctx {x['ctx']:.3f}",
        flush=True,
    )


def main():
    size, tenants, rounds = map(int, sys.argv[1:4])
    os.makedirs(WORK, exist_ok=True)
    groups = [f"{CGROUP}/t{index}" for index in range(tenants)]
    for group in groups:
        os.makedirs(group, exist_ok=True)
    base = None
    for _ in range(rounds):
        for way, at_once, managed in WAYS:
            daemon = start_daemon() if managed else None
            measured = run(size, tenants, at_once)
            if daemon:
                daemon.terminate()
                daemon.wait()
            if way == "unmanaged":
                base = measured
            show(f"{tenants}x{size} {way:10}", measured, base)
    for group in [*groups, CGROUP]:
        os.rmdir(group)


if __name__ == "__main__":
    main()
