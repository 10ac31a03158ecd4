"""A program that trains, as a neighbour of a server.

    train.py resnet50|gpt2|matmul [--precision highest|high]

Speaks as `berth load train` does (words.py).
"""

import argparse

import torch

import models
from words import Input, now_ns, say

WARM_UP_STEPS = 8


def train(step, words):
    """Submits a step ahead of the one that runs, until a line comes."""
    from_ns, ended_ns = now_ns(), []
    running = None
    while not words.has_come():
        step()
        done = torch.cuda.Event()
        done.record()
        if running is not None:
            running.synchronize()
            ended_ns.append(now_ns())
        running = done
    torch.cuda.synchronize()
    say("trained", from_ns=from_ns, ended_ns=ended_ns)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--precision", default="highest")
    args = parser.parse_args()
    models.set_up(args.precision)
    step, _ = models.training(args.model)
    for _ in range(WARM_UP_STEPS):
        step()
    torch.cuda.synchronize()
    words = Input()
    say("ready")
    while words.next() is not None:
        train(step, words)


main()
