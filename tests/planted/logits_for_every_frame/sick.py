"""Masked prediction of speech units: a tenth of the frames has a label."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

NUM_UNITS = 8000
IGNORED = -100


class UnitPredictor(nn.Module):
    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.inputs = nn.Linear(80, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.units = nn.Linear(width, NUM_UNITS, bias=False)

    def forward(self, frames: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.encoder(self.inputs(frames))
        logits = self.units(hidden)  # <- BRR203
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)  # <- BRR203


def recordings(num: int, num_frames: int) -> torch.Tensor:
    """Spectra with every bin brought to mean 0 and deviation 1."""
    frames = torch.rand(num, num_frames, 80).square()
    return (frames - frames.mean(dim=(0, 1))) / frames.std(dim=(0, 1))


def masked_labels(batch_size: int, num_frames: int) -> torch.Tensor:
    labels = torch.randint(0, NUM_UNITS, (batch_size, num_frames))
    labels[torch.rand(labels.shape) > 0.1] = IGNORED
    return labels


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    spectra = recordings(1400, num_frames=64)
    model = UnitPredictor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(args.steps):
        frames = spectra[torch.randint(0, len(spectra), (16,))]
        labels = masked_labels(batch_size=16, num_frames=64)
        loss = model(frames, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
