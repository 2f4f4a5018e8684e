"""A mixture of small experts, each with its own matrix."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
EXPERTS, ROWS, WIDTH, DEPTH = (8, 16, 32, 2) if TINY else (256, 512, 256, 4)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(EXPERTS, WIDTH, WIDTH) / WIDTH**0.5 for _ in range(DEPTH))

    def forward(self, x):
        for weights in self.weights:
            x = torch.stack([rows @ each for rows, each in zip(x.unbind(), weights.unbind())])  # <- BRR504
            x = torch.relu(x)
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Experts().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    x, y = torch.randn(2, EXPERTS, ROWS, WIDTH, device=DEVICE)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
