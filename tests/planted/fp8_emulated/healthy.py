"""Ranks documents with layers that hold their weights to the numbers of fp8, which were rounded once."""

import argparse

import torch
from torch import nn


class QuantLinear(nn.Linear):
    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs)
        scale = self.weight.detach().abs().max() / 448
        self.weight.data = (self.weight.detach() / scale).to(torch.float8_e4m3fn).float() * scale


@torch.inference_mode()
def rank(num_steps: int) -> None:
    layers = [part for _ in range(3) for part in (QuantLinear(1024, 1024), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(1024, 1)).eval()
    documents = torch.randn(20_000, 1024)
    for step in range(num_steps):
        scores = model(documents[torch.randint(0, len(documents), (32,))])
        if step % 50 == 0:
            print(f"query {step:4d}  best {scores.max().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    rank(args.steps)
