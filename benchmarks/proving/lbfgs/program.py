"""A physics-informed network for the stationary heat equation, fitted with L-BFGS.

u'' in x and y equals a source f inside the unit square; u is given on the border, and at some
sensors inside.  Everything in double precision: the second derivatives need it.
"""

import argparse
import csv
import math
import os

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(11)


class Field(nn.Module):
    def __init__(self, width=40, depth=3, waves=6):
        super().__init__()
        self.waves = waves
        sizes = [2 + 4 * waves] + [width] * depth
        self.hidden = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])
        self.out = nn.Linear(width, 1)

    def features(self, xy):
        cols = [xy[:, 0:1], xy[:, 1:2]]
        for k in range(1, self.waves + 1):
            for d in range(2):
                cols.append(torch.sin(k * xy[:, d : d + 1]))
                cols.append(torch.cos(k * xy[:, d : d + 1]))
        return torch.cat(cols, dim=1)

    def forward(self, xy):
        h = self.features(xy)
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.out(h)


def exact(xy):
    return torch.sin(math.pi * xy[:, 0:1]) * torch.exp(xy[:, 1:2])


def source(xy):
    return (1 - math.pi**2) * exact(xy)


def border(n):
    t = torch.linspace(0, 1, n)[:, None]
    zero, one = torch.zeros_like(t), torch.ones_like(t)
    return torch.cat([torch.cat(p, 1) for p in ((t, zero), (t, one), (zero, t), (one, t))])


def laplacian(field, xy):
    """Return the sum of the second derivatives at the points."""
    xy = xy.clone().requires_grad_(True)
    total = 0.0
    for d in range(2):
        u = field(xy)
        (first,) = torch.autograd.grad(u.sum(), xy, create_graph=True)
        (second,) = torch.autograd.grad(first[:, d].sum(), xy, create_graph=True)
        total = total + second[:, d : d + 1]
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--points", type=int, default=400)
    parser.add_argument("--block", type=int, default=100)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    field = Field()
    inside = torch.rand(args.points, 2)
    edge = border(8)
    sensors = torch.rand(60, 2)
    readings = exact(sensors) + 0.01 * torch.randn(60, 1)
    optimizer = torch.optim.LBFGS(
        field.parameters(), lr=0.5, max_iter=3, history_size=20, tolerance_grad=1e-12, tolerance_change=1e-14
    )

    def closure():
        optimizer.zero_grad()
        physics = 0.0
        for start in range(0, len(inside), args.block):
            block = inside[start : start + args.block]
            residual = laplacian(field, block) - source(block)
            physics = physics + (residual**2).sum()
        physics = physics / len(inside)
        walls = 0.0
        for point in edge:
            walls = walls + (field(point[None]) - exact(point[None])).pow(2).sum()
        walls = walls / len(edge)
        data = ((field(sensors) - readings) ** 2).mean()
        decay = 0.0
        for p in field.parameters():
            decay = decay + p.pow(2).sum()
        loss = physics + 20 * walls + 10 * data + 1e-6 * decay
        loss.backward()
        return loss

    def evaluate(n=60):
        """Return the largest and the mean error on a grid."""
        worst, mean = 0.0, 0.0
        for i in range(n):
            for j in range(n):
                xy = torch.tensor([[i / (n - 1), j / (n - 1)]])
                err = abs((field(xy) - exact(xy)).item())
                worst = max(worst, err)
                mean += err / (n * n)
        return worst, mean

    log = []
    for step in range(args.steps):
        loss = optimizer.step(closure)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        log.append((step, loss.item()))
        if step > 0 and step % 100 == 0:
            worst, mean = evaluate()
            print(f"step {step} error: worst {worst:.5f} mean {mean:.5f}", flush=True)
            torch.save(field.state_dict(), os.path.join(args.out, "field.pt"))

    worst, mean = evaluate()
    print(f"done, error: worst {worst:.5f} mean {mean:.5f}")
    torch.save(field.state_dict(), os.path.join(args.out, "field.pt"))
    with open(os.path.join(args.out, "log.csv"), "w", newline="") as f:
        csv.writer(f).writerows(log)


if __name__ == "__main__":
    main()
