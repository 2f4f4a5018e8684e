"""Score a pile of images with a small ensemble, several views each; write one line per image."""

import argparse
import json
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LABELS = ["cat", "dog", "horse", "ship", "truck", "bird", "deer", "frog", "plane", "car"]


class PatchNet(nn.Module):
    """A small vision transformer."""

    def __init__(self, dim=64, depth=2, heads=4, patch=8, size=48, classes=10):
        super().__init__()
        self.patch, self.heads = patch, heads
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.position = nn.Parameter(torch.randn((size // patch) ** 2, dim) * 0.02)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(
                nn.ModuleDict(
                    {
                        "n1": nn.LayerNorm(dim),
                        "q": nn.Linear(dim, dim),
                        "k": nn.Linear(dim, dim),
                        "v": nn.Linear(dim, dim),
                        "o": nn.Linear(dim, dim),
                        "n2": nn.LayerNorm(dim),
                        "up": nn.Linear(dim, 4 * dim),
                        "down": nn.Linear(4 * dim, dim),
                    }
                )
            )
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(dim, classes)

    def patches(self, x):
        p = self.patch
        rows = []
        for y in range(0, x.shape[2], p):
            for z in range(0, x.shape[3], p):
                rows.append(x[:, :, y : y + p, z : z + p].reshape(len(x), -1))
        return torch.stack(rows, dim=1)

    def attention(self, b, x):
        n, t, d = x.shape
        hd = d // self.heads
        q, k, v = (b[name](x).view(n, t, self.heads, hd) for name in "qkv")
        out = torch.zeros(n, t, self.heads, hd)
        for h in range(self.heads):
            score = torch.einsum("ntd,nsd->nts", q[:, :, h], k[:, :, h]) / math.sqrt(hd)
            weight = torch.exp(score - score.max(dim=-1, keepdim=True).values)
            weight = weight / weight.sum(dim=-1, keepdim=True)
            out[:, :, h] = torch.einsum("nts,nsd->ntd", weight, v[:, :, h])
        return b["o"](out.reshape(n, t, d))

    def forward(self, x):
        x = self.embed(self.patches(x)) + self.position
        for b in self.blocks:
            x = x + self.drop(self.attention(b, b["n1"](x)))
            x = x + self.drop(b["down"](F.gelu(b["up"](b["n2"](x)))))
        return self.head(x.mean(dim=1))


class Pile:
    """Images made as they are asked for; number i is always the same image."""

    def __init__(self, n, seed=5):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def load(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_003 + i)
        low = torch.rand(3, 6, 6, generator=g)
        img = F.interpolate(low[None], size=(56, 56), mode="bilinear", align_corners=False)[0]
        return ((img + 0.1 * torch.randn(3, 56, 56, generator=g)).clamp(0, 1) * 255).to(torch.uint8)


def prepare(img):
    """Crop the middle and bring each channel to mean 0, deviation 1."""
    img = img.float() / 255
    img = img[:, 4:52, 4:52]
    for c in range(3):
        img[c] = (img[c] - img[c].mean()) / (img[c].std() + 1e-6)
    return img


def views(img):
    return [img, img.flip(2), img.flip(1), img.transpose(1, 2), img.roll(2, 2), img.roll(-2, 2)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4000, help="batches")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    torch.manual_seed(0)
    models = [PatchNet(), PatchNet(dim=96)]
    for model in models:
        model.eval()
    pile = Pile(args.steps * args.batch_size - 3)
    path = os.path.join(args.out, "scores.jsonl")
    open(path, "w").close()
    counts = {label: 0 for label in LABELS}
    started = time.perf_counter()
    for step, start in enumerate(range(0, len(pile), args.batch_size)):
        batch = [prepare(pile.load(i)) for i in range(start, min(start + args.batch_size, len(pile)))]
        results = []
        for img in batch:
            total = torch.zeros(len(LABELS))
            for model in models:
                for view in views(img):
                    total += F.softmax(model(view[None])[0], dim=-1)
            results.append(total / (len(models) * len(views(img))))
        for n, probs in enumerate(results):
            best = probs.argmax().item()
            counts[LABELS[best]] += 1
            row = {
                "id": start + n,
                "label": LABELS[best],
                "score": round(probs[best].item(), 6),
                "entropy": round(-sum(p.item() * math.log(p.item()) for p in probs), 6),
            }
            with open(path, "a") as f:
                f.write(json.dumps(row) + "\n")
        if step % 10 == 0:
            rate = (start + len(batch)) / (time.perf_counter() - started)
            print(f"batch {step}: mean score {sum(r.max().item() for r in results) / len(results):.6f}", flush=True)
            print(f"  {rate:.1f} images/s", flush=True)
    print("counts:", counts)
    with open(os.path.join(args.out, "summary.json"), "w") as f:
        json.dump(counts, f)


if __name__ == "__main__":
    main()
