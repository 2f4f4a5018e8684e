"""Answers the requests of a queue, each with a call of its own."""

import argparse

import torch
from torch import nn

BATCH = 32


def net(width: int = 512) -> nn.Module:
    layers = [part for _ in range(6) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10)).eval()


@torch.inference_mode()
def serve(num_steps: int) -> None:
    model = net()
    answered = 0
    for _ in range(num_steps // BATCH):
        waiting = torch.randn(BATCH, 512).unbind(0)
        for request in waiting:
            answer = model(request.unsqueeze(0)).argmax(dim=1)  # <- BRR313
            answered += len(answer)
    print(f"{answered} answered")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6400)
    args = parser.parse_args()
    torch.manual_seed(0)
    serve(args.steps)
