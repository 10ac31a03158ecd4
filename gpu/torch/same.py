"""The results of a training with fixed seeds and deterministic algorithms, as one number: whoever computes the same prints the same.

    same.py [--model resnet50|gpt2] [--steps 100]

Run it with and without berth's library, alone and beside others, and compare.
"""

import argparse
import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  (what cuBLAS finds must be set before)

import models  # noqa: E402
from words import say  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    models.set_up("highest")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    step, parameters = models.training(args.model)
    digest = hashlib.sha256()
    losses = [step().detach() for _ in range(args.steps)]
    for tensor in losses + parameters:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    say("same", model=args.model, steps=args.steps, last_loss=losses[-1].item(), sha256=digest.hexdigest())


main()
