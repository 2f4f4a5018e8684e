"""Classify leaf scans; most of the time goes into reading and augmenting them."""

import argparse
import math
import os
import struct
import tempfile
import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SIZE = 48
CROP = 40
CLASSES = 6


def write_scans(folder, n, seed):
    """Write n compressed scans, as a scanner's export would lie on the disk."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE] / SIZE - 0.5
    for i in range(n):
        label = int(rng.integers(CLASSES))
        r = np.hypot(yy, xx) + 0.05 * np.sin((label + 2) * np.arctan2(yy, xx))
        leaf = (r < rng.uniform(0.25, 0.4)).astype(np.float64)
        img = leaf[..., None] * rng.uniform(0.3, 0.9, 3) + rng.normal(0, 0.05, (SIZE, SIZE, 3)) + 0.1
        raw = (img.clip(0, 1) * 255).astype(np.uint8).tobytes()
        with open(os.path.join(folder, f"{i:05d}.scan"), "wb") as f:
            f.write(struct.pack("<HHH", SIZE, SIZE, label) + zlib.compress(raw))


def read_scan(path):
    with open(path, "rb") as f:
        head = f.read(6)
        h, w, label = struct.unpack("<HHH", head)
        raw = zlib.decompress(f.read())
    img = np.frombuffer(raw, dtype=np.uint8).reshape(h, w, 3)
    return img.astype(np.float32) / 255.0, label


def blur(img, sigma):
    """Blur with a small Gaussian, pixel after pixel down the rows."""
    kernel = np.array([math.exp(-(d * d) / (2 * sigma * sigma)) for d in (-2, -1, 0, 1, 2)], dtype=np.float32)
    kernel /= kernel.sum()
    padded = np.pad(img, ((2, 2), (2, 2), (0, 0)), mode="edge")
    across = np.zeros((padded.shape[0], img.shape[1], 3), dtype=np.float32)
    for x in range(img.shape[1]):
        for k in range(5):
            across[:, x] += kernel[k] * padded[:, x + k]
    down = np.zeros_like(img)
    for y in range(img.shape[0]):
        for k in range(5):
            down[y] += kernel[k] * across[y + k]
    return down


def rotate(img, degrees):
    """Turn about the middle, nearest pixel."""
    h, w = img.shape[:2]
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    out = np.zeros_like(img)
    for y in range(h):
        v = y - h / 2
        u = np.arange(w) - w / 2
        sy = np.clip(np.round(c * v + s * u + h / 2), 0, h - 1).astype(int)
        sx = np.clip(np.round(-s * v + c * u + w / 2), 0, w - 1).astype(int)
        out[y] = img[sy, sx]
    return out


class Leaves(Dataset):
    def __init__(self, folder, train, seed=0):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self.train = train
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        img, label = read_scan(self.paths[i])
        if self.train:
            rng = np.random.default_rng((self.seed, self.epoch, i))
            img = rotate(img, rng.uniform(-25, 25))
            img = blur(img, rng.uniform(0.5, 1.2))
            y, x = rng.integers(0, SIZE - CROP, 2)
            img = img[y : y + CROP, x : x + CROP]
            if rng.random() < 0.5:
                img = img[:, ::-1]
            img = np.clip(img * rng.uniform(0.7, 1.3), 0, 1)
        else:
            edge = (SIZE - CROP) // 2
            img = img[edge : edge + CROP, edge : edge + CROP]
        out = np.empty((3, CROP, CROP), dtype=np.float32)
        for c in range(3):
            out[c] = (img[:, :, c] - 0.4) / 0.3
        return torch.tensor(out.tolist()), label


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(48, CLASSES),
    )


def evaluate(model, loader):
    model.eval()
    right, seen, losses = 0, 0, 0.0
    for x, y in loader:
        out = model(x)
        losses += nn.functional.cross_entropy(out, y, reduction="sum").item()
        for guess, truth in zip(out.argmax(1), y):
            right += int(guess == truth)
            seen += 1
    model.train()
    return losses / seen, right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=0, help="stop after this many steps")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    with tempfile.TemporaryDirectory() as data:
        for name, n, seed in (("train", 1210, 1), ("test", 240, 2)):
            os.makedirs(os.path.join(data, name))
            write_scans(os.path.join(data, name), n, seed)
        train_set = Leaves(os.path.join(data, "train"), train=True)
        test_set = Leaves(os.path.join(data, "test"), train=False)
        train_loader = DataLoader(train_set, batch_size=16, shuffle=True, num_workers=0)
        test_loader = DataLoader(test_set, batch_size=16, num_workers=0)

        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        step, best = 0, 0.0
        for epoch in range(args.epochs):
            train_set.set_epoch(epoch)
            running = 0.0
            for x, y in train_loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
                optimizer.step()
                running = 0.9 * running + 0.1 * loss.item()
                if step % 10 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f} running {running:.4f}", flush=True)
                step += 1
                if step == args.steps:
                    break
            test_loss, accuracy = evaluate(model, test_loader)
            print(f"epoch {epoch}: test loss {test_loss:.4f} accuracy {accuracy:.4f}", flush=True)
            if accuracy >= best:
                best = accuracy
                torch.save(model.state_dict(), os.path.join(args.out, "best.pt"))
            if step == args.steps:
                break
        torch.save(model.state_dict(), os.path.join(args.out, "last.pt"))


if __name__ == "__main__":
    main()
