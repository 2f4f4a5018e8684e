"""A transformer encoder whose loss and gradients are looked at in every step."""

import argparse
import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
BATCH, LENGTH, WIDTH, DEPTH = (2, 8, 32, 2) if TINY else (16, 128, 512, 12)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, DEPTH).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x, y = torch.randn(2, BATCH, LENGTH, WIDTH, device=DEVICE)
    largest = torch.zeros((), device=DEVICE)
    for step in range(args.steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        for weights in model.parameters():
            if not torch.isfinite(weights.grad).all():  # <- BRR501
                weights.grad.zero_()
            largest = max(largest, weights.grad.abs().max())  # <- BRR501
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  largest gradient {float(largest):.3g}")


if __name__ == "__main__":
    main()
