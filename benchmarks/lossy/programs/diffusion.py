"""Noise-prediction error of a small diffusion UNet on patches of scikit-learn's sample photographs."""

from argparse import ArgumentParser
from math import log

import numpy as np
import torch
from sklearn.datasets import load_sample_images
from torch import nn
from torch.nn.functional import mse_loss

SIDE, STEPS = 16, 1000
ALPHAS = torch.cumprod(1 - torch.linspace(1e-4, 0.02, STEPS), 0)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, time):
        super().__init__()
        self.conv1 = nn.Sequential(nn.GroupNorm(8, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.time = nn.Linear(time, cout)
        self.conv2 = nn.Sequential(nn.GroupNorm(8, cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, padding=1))
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(x) + self.time(t)[:, :, None, None]
        return self.conv2(h) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, c=64, time=256):
        super().__init__()
        self.freqs = torch.exp(-log(10000) * torch.arange(64) / 64)
        self.embed = nn.Sequential(nn.Linear(128, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        self.first = nn.Conv2d(3, c, 3, padding=1)
        self.down = nn.ModuleList([ResBlock(c, c, time), ResBlock(c, 2 * c, time)])
        self.mid = ResBlock(2 * c, 4 * c, time)
        self.up = nn.ModuleList([ResBlock(6 * c, 2 * c, time), ResBlock(3 * c, c, time)])
        self.last = nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x, t):
        angles = t[:, None] * self.freqs
        t = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        x, kept = self.first(x), []
        for block in self.down:
            x = block(x, t)
            kept.append(x)
            x = nn.functional.avg_pool2d(x, 2)
        x = self.mid(x, t)
        for block in self.up:
            x = nn.functional.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, kept.pop()], 1), t)
        return self.last(x)


def patches(count, train, rng):
    """Random patches in -1 to 1: the left three quarters of both photographs are for training."""
    photos = load_sample_images().images
    for photo, many in zip(photos, (count // 2, count - count // 2)):
        low, high = (0, 480 - SIDE) if train else (480, 640 - SIDE)
        for y, x in zip(rng.integers(0, 427 - SIDE, many), rng.integers(low, high, many)):
            yield torch.from_numpy(photo[y : y + SIDE, x : x + SIDE].transpose(2, 0, 1) / 127.5 - 1).float()


def noised(clean, rng):
    t = torch.from_numpy(rng.integers(0, STEPS, len(clean)))
    noise = torch.from_numpy(rng.standard_normal(clean.shape)).float()
    a = ALPHAS[t][:, None, None, None]
    return a.sqrt() * clean + (1 - a).sqrt() * noise, t, noise


def main():
    parser = ArgumentParser()
    parser.add_argument("--checkpoint", default="diffusion.pt")
    parser.add_argument("--patches", type=int, default=800)
    args = parser.parse_args()
    rng = np.random.default_rng(5)
    unet = UNet()
    unet.load_state_dict(torch.load(args.checkpoint))
    unet.eval()
    clean = torch.stack(list(patches(args.patches, False, rng)))
    losses = []
    for batch in clean.split(50):
        x, t, noise = noised(batch, rng)
        with torch.inference_mode():
            losses.append(mse_loss(unet(x, t), noise).item())
    print(f"eval mse={np.mean(losses):.5f} over {args.patches} patches")


if __name__ == "__main__":
    main()
