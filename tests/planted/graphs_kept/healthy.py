"""Trains an autoencoder and keeps what it needs for the plot afterwards."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Autoencoder(nn.Module):
    def __init__(self, bins: int = 512, width: int = 512) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(bins, width), nn.ReLU(), nn.Linear(width, 64))
        self.decode = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, bins))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curves = torch.randn(14_000, 512).cumsum(dim=1)
    curves = (curves - curves.mean(dim=0)) / curves.std()
    held_out, curves = curves[:1024], curves[1024:]
    training_losses, held_out_losses = [], []
    for step in range(args.steps):
        x = curves[torch.randint(0, len(curves), (512,))]
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        training_losses.append(loss.item())
        with torch.no_grad():
            held_out_losses.append(F.mse_loss(model(held_out), held_out))
        if step % 50 == 0:
            print(f"step {step:4d}  training {loss.item():.4f}  held out {held_out_losses[-1].item():.4f}")
    print(f"best held-out loss {torch.stack(held_out_losses).min().item():.4f}")


if __name__ == "__main__":
    main()
