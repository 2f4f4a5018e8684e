"""A DCGAN that learns to draw blobs; two optimizers, gradient penalty, an averaged generator."""

import argparse
import copy
import json
import os

import numpy as np
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=None)
parser.add_argument("--epochs", type=int, default=80)
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--nz", type=int, default=32)
parser.add_argument("--ngf", type=int, default=16)
parser.add_argument("--ndf", type=int, default=16)
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--gp", type=float, default=10.0)
parser.add_argument("--diversity", type=float, default=0.1)
parser.add_argument("--out", default="out")
opt = parser.parse_args()
os.makedirs(opt.out, exist_ok=True)


def blobs(n):
    """Draw n pictures of three soft blobs, 32 x 32, as bytes."""
    rng = np.random.default_rng(3)
    yy, xx = np.mgrid[0:32, 0:32]
    out = np.zeros((n, 32, 32, 1), dtype=np.uint8)
    for i in range(n):
        img = np.zeros((32, 32))
        for _ in range(3):
            cy, cx, s = rng.uniform(6, 26), rng.uniform(6, 26), rng.uniform(2, 5)
            img += np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * s * s))
        out[i, :, :, 0] = np.clip(img * 255, 0, 255)
    return out


class BlobDataset(torch.utils.data.Dataset):
    def __init__(self, n=1500):
        self.images = blobs(n)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        out = torch.empty(1, 32, 32)
        for y in range(32):
            out[0, y] = torch.from_numpy(img[y, :, 0].astype(np.float32) / 127.5 - 1.0)
        return out


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),
            nn.GroupNorm(4, ngf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
            nn.GroupNorm(4, ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.GroupNorm(4, ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 4, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def weights_init(m):
    if m.__class__.__name__.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)


def gradient_penalty(netD, real, fake):
    total = 0.0
    for i in range(real.size(0)):
        a = torch.rand(1)
        mix = (a * real[i : i + 1] + (1 - a) * fake[i : i + 1]).detach().requires_grad_(True)
        out = netD(mix)
        (grad,) = torch.autograd.grad(out.sum(), mix, create_graph=True)
        total = total + (grad.view(-1).norm(2) - 1) ** 2
    return total / real.size(0)


def diversity(fake):
    """Return the mean distance between all pairs of the batch."""
    flat = fake.view(fake.size(0), -1)
    total, pairs = 0.0, 0
    for i in range(len(flat)):
        for j in range(i + 1, len(flat)):
            total = total + (flat[i] - flat[j]).abs().mean()
            pairs += 1
    return total / pairs


def save_grid(images, path):
    """Write the pictures as one PGM, eight in a row."""
    rows = (len(images) + 7) // 8
    grid = np.zeros((rows * 32, 8 * 32), dtype=np.uint8)
    for n, img in enumerate(images):
        for y in range(32):
            for x in range(32):
                value = (img[0, y, x].item() + 1) * 127.5
                grid[(n // 8) * 32 + y, (n % 8) * 32 + x] = int(max(0, min(255, value)))
    with open(path, "wb") as f:
        f.write(f"P5 {grid.shape[1]} {grid.shape[0]} 255\n".encode() + grid.tobytes())


dataset = BlobDataset()
loader = torch.utils.data.DataLoader(dataset, batch_size=opt.batch_size, shuffle=True)
netG = Generator(opt.nz, opt.ngf)
netG.apply(weights_init)
netD = Discriminator(opt.ndf)
netD.apply(weights_init)
averaged = copy.deepcopy(netG)
bce = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
fixed_noise = torch.randn(32, opt.nz, 1, 1)
history = []


def sample(step):
    fake = averaged(fixed_noise)
    save_grid(fake, os.path.join(opt.out, f"fake_{step:05d}.pgm"))
    torch.save(
        {"G": netG.state_dict(), "D": netD.state_dict(), "averaged": averaged.state_dict()},
        os.path.join(opt.out, "gan.pt"),
    )


step = 0
for epoch in range(opt.epochs):
    for real in loader:
        b = real.size(0)
        noise = torch.randn(b, opt.nz, 1, 1)

        # discriminator: real up, fake down, slopes near one
        netD.zero_grad()
        lossD_real = bce(netD(real), torch.full((b,), 1.0))
        fake = netG(noise)
        lossD_fake = bce(netD(fake), torch.full((b,), 0.0))
        lossD = lossD_real + lossD_fake + opt.gp * gradient_penalty(netD, real, fake)
        lossD.backward()
        optimizerD.step()

        # generator: fool it, and draw different things
        netG.zero_grad()
        fake = netG(noise)
        lossG = bce(netD(fake), torch.full((b,), 1.0)) - opt.diversity * diversity(fake)
        lossG.backward()
        optimizerG.step()

        with torch.no_grad():
            for pa, p in zip(averaged.parameters(), netG.parameters()):
                pa.copy_(0.99 * pa + 0.01 * p)

        history.append((lossD.item(), lossG.item()))
        if step % 10 == 0:
            print(f"[{epoch}/{opt.epochs}][{step}] Loss_D: {lossD.item():.4f} Loss_G: {lossG.item():.4f}", flush=True)
        if step > 0 and step % 200 == 0:
            sample(step)
        step += 1
        if opt.steps is not None and step >= opt.steps:
            break
    if opt.steps is not None and step >= opt.steps:
        break

sample(step)
with open(os.path.join(opt.out, "history.json"), "w") as f:
    json.dump(history, f)
