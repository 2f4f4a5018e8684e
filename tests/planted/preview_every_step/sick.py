"""Trains an autoencoder of small pictures and keeps a picture of how well it does."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Autoencoder(nn.Module):
    def __init__(self, size: int = 32 * 32, width: int = 512, code: int = 32) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, size))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(pictures))


@torch.no_grad()
def contact_sheet(model: Autoencoder, codes: torch.Tensor) -> np.ndarray:
    pictures = model.decode(codes).sigmoid()  # <- BRR117
    return pictures.view(40, 50, 32, 32).permute(0, 2, 1, 3).reshape(40 * 32, -1).numpy()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = torch.rand(4000, 32 * 32)
    codes = torch.randn(2000, 32)
    model = Autoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(args.steps):
            pictures = data[torch.randint(0, len(data), (256,))]
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(pictures), pictures)
            loss.backward()
            optimizer.step()
            sheet = contact_sheet(model, codes)  # <- BRR117
            if step % 40 == 0:
                np.save(Path(folder) / "sheet.npy", sheet)
                print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
