"""A server of requests: each replays a CUDA graph of one inference, and they arrive at random, not when the last one is done.

    serve.py resnet50|bert [--precision highest|high]

Speaks as `berth load serve` does (words.py).
"""

import argparse
import random
import time

import torch

import models
from words import Input, latencies, now_ns, say

# As in crates/berth-load/src/roles/serve.rs.
SERVICE_REQUESTS = 50
GIVES_UP_AFTER = 2


def capture(infer):
    """The inference as a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            infer()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        infer()
    return graph


def request(graph):
    graph.replay()
    torch.cuda.synchronize()


def serve(graph, rate, seconds, seed):
    arrivals = random.Random(seed)
    values_ms, first_ms, queued_ms, given_up = [], [], [], 0
    from_ns, begun = now_ns(), time.perf_counter()
    due = begun
    while True:
        due += arrivals.expovariate(rate)
        if due - begun > seconds:
            break
        if time.perf_counter() - begun < GIVES_UP_AFTER * seconds:
            # Whoever was due before this one was done has queued.
            taken = queued_ms if time.perf_counter() > due else first_ms
            while (started := time.perf_counter()) < due:
                pass
            request(graph)
            taken.append((time.perf_counter() - started) * 1e3)
        else:
            given_up += 1
        values_ms.append((time.perf_counter() - due) * 1e3)
    latencies(rate, (from_ns, now_ns()), values_ms, given_up, first_ms, queued_ms)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--precision", default="highest")
    args = parser.parse_args()
    models.set_up(args.precision)
    with torch.no_grad():
        graph = capture(models.inference(args.model))
    for _ in range(20):
        request(graph)
    words = Input()
    say("ready", graph=True)
    while (word := words.next()) is not None:
        if word == ["service"]:
            begun = time.perf_counter()
            for _ in range(SERVICE_REQUESTS):
                request(graph)
            say("service", ms=(time.perf_counter() - begun) * 1e3 / SERVICE_REQUESTS)
        else:
            rate, seconds = (float(word[1]), float(word[2])) if len(word) > 2 else (200.0, 5.0)
            serve(graph, rate, seconds, int(word[3]) if len(word) > 3 else 1)


main()
