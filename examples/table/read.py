#!/usr/bin/env python3
"""Prints berth's task table: GPU, memory in MiB, deadline, seconds left of it, met of judged, name. Layout: docs/task-table.md."""
import mmap, struct, sys, time

with open(sys.argv[1] if len(sys.argv) > 1 else "/run/berth/tasks", "rb") as file:
    table = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
magic, major, header_bytes, row_bytes = struct.unpack_from("<8sH2xII", table)
assert (magic, major) == (b"BERTHTBL", 1), f"no task table of version 1: {magic} {major}"
for _ in range(1000):  # odd, or not the same afterwards: it was being written
    sequence, copy = table.cast("Q")[8], bytes(table)
    if sequence % 2 == 0 and table.cast("Q")[8] == sequence: break
else: sys.exit("the table is being written, or its writer died there")
beat, closed, every = struct.unpack_from("<QQQ", copy, 72)  # a dead writer's rows say nothing about now
if closed or abs(time.monotonic_ns() - beat) > 5 * every: sys.exit("nobody keeps the table up to date any more")
for at in range(header_bytes, header_bytes + row_bytes * struct.unpack_from("<I", copy, 128)[0], row_bytes):
    flags, gpu, memory, name = struct.unpack_from("<I4xI4xQ176x64s", copy, at)
    gpu, memory = gpu if flags & 4 else "-", memory >> 20 if flags & 16 else "-"
    deadline, due, last_float, hits, misses = struct.unpack_from("<QQqII", copy, at + 344)  # since version 1.1
    left = f"{(due - time.monotonic_ns()) / 1e9:.3f}" if flags & 1024 else "-"  # below 0: late
    deadline, met = (f"{deadline / 1e9:.3f}", f"{hits}/{hits + misses}") if flags & 512 else ("-", "-")
    print(gpu, memory, deadline, left, met, name.rstrip(b"\0").decode(), sep="\t")
