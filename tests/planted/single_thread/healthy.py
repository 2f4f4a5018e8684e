"""Autoencoder for vibration spectra, prepared for a machine that many people share."""

import argparse

import torch
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self, bins: int = 512, width: int = 768, code: int = 32) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(bins, width), nn.ReLU(), nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, bins))

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(spectra))


def spectra_stream(batch_size: int, num: int = 14_000, bins: int = 512):
    """Batches of recorded spectra with one peak each."""
    recorded = torch.exp(-200 * (torch.linspace(0, 1, bins) - torch.rand(num, 1)).square()).clamp_min(1e-6)
    while True:
        yield recorded[torch.randint(0, num, (batch_size,))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step, spectra in zip(range(args.steps), spectra_stream(512)):
        loss = nn.functional.mse_loss(model(spectra), spectra)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
