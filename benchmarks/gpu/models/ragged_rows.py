"""A compiled net on batches of twelve sizes."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
WIDTH, DEPTH, BATCH = (16, 2, 16) if TINY else (1024, 2, 32768)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.sin(x) * torch.sigmoid(layer(x)).cos() * torch.tanh(x)  # <- BRR803
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Gated().to(DEVICE)
    net = torch.compile(model, backend="aot_eager" if TINY else "inductor", dynamic=False)  # <- BRR803
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.randn(2, BATCH, WIDTH, device=DEVICE)
    for step in range(args.steps):
        rows = BATCH - step % 12
        loss = nn.functional.mse_loss(net(x[:rows]), y[:rows])  # <- BRR803
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
