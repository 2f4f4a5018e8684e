"""A small vision transformer on photographs that are turned and scaled as they are read."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("DEVICE", "cuda")
TINY = "TINY" in os.environ
BATCH, SIDE, WIDTH, DEPTH = (4, 32, 32, 1) if TINY else (32, 224, 384, 6)
WORKERS = 0


class Photographs(Dataset):
    def __init__(self):
        self.raw = torch.randint(0, 256, (32, 3, SIDE + 64, SIDE + 64), dtype=torch.uint8)

    def __len__(self):
        return 32 * BATCH

    def __getitem__(self, index):
        picture = self.raw[index % 32].float() / 255
        picture = nn.functional.interpolate(picture[None], size=SIDE, mode="bicubic", antialias=True)[0]  # <- BRR401
        return (picture - picture.mean((1, 2), keepdim=True)) / picture.std((1, 2), keepdim=True), index % 10


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut = nn.Conv2d(3, WIDTH, 16, stride=16)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        return self.head(self.body(self.cut(x).flatten(2).transpose(1, 2)).mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Vit().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loader = DataLoader(Photographs(), BATCH, num_workers=WORKERS, persistent_workers=WORKERS > 0)  # <- BRR401
    step = 0
    while step < args.steps:
        for x, labels in loader:  # <- BRR401
            loss = nn.functional.cross_entropy(model(x.to(DEVICE)), labels.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                return


if __name__ == "__main__":
    main()
