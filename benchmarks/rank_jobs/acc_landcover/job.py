"""Land-cover segmentation on satellite tiles (accelerate), four tiles groups per update."""
import contextlib
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

MAX_STEPS = int(os.environ.get("MAX_STEPS", "280"))
GROUPS, CLASSES = 4, 7


def conv(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride=stride, padding=1), nn.GroupNorm(8, o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2 = conv(4, 16, 2), conv(16, 64, 2)
        self.d3, self.d4 = conv(64, 192, 2), conv(192, 384, 2)
        self.mid = conv(384, 384)
        self.u3, self.u2, self.u1 = conv(384 + 192, 96), conv(96 + 64, 32), conv(32 + 16, 16)
        self.out = nn.Conv2d(16, CLASSES, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(a)
        c = self.d3(b)
        d = self.mid(self.d4(c))
        y = self.u3(torch.cat([F.interpolate(d, scale_factor=2), c], 1))
        y = self.u2(torch.cat([F.interpolate(y, scale_factor=2), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return F.interpolate(self.out(y), scale_factor=2)


def tiles(n=512):
    g = torch.Generator().manual_seed(6)
    x = torch.rand(n, 4, 32, 32, generator=g)
    y = (F.avg_pool2d(x[:, :1], 3, 1, 1).squeeze(1) * CLASSES).long().clamp(0, CLASSES - 1)
    return TensorDataset(x, y)


def endless(loader):
    while True:
        yield from loader


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(12)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(tiles(), batch_size=1, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    feed = endless(loader)
    begin = time.time()
    for step in range(MAX_STEPS):
        for part in range(GROUPS):
            x, y = next(feed)
            with contextlib.nullcontext():
                loss = F.cross_entropy(model(x), y) / GROUPS
                accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            accelerator.print(f"update {step} loss {GROUPS * loss.item():.3f}", flush=True)
    accelerator.print(f"{MAX_STEPS} steps, {1000 * (time.time() - begin) / MAX_STEPS:.1f} ms each", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
