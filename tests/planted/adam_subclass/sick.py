"""Trains a deep narrow net with an optimizer of its own, Adam after the paper."""

import argparse

import torch
from torch import nn


class Adam(torch.optim.Optimizer):
    def __init__(self, params, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(time=0, first=torch.zeros_like(p), second=torch.zeros_like(p))
                state["time"] += 1
                state["first"] = 0.9 * state["first"] + 0.1 * p.grad  # <- BRR209
                state["second"] = 0.999 * state["second"] + 0.001 * p.grad * p.grad  # <- BRR209
                mean = state["first"] / (1 - 0.9 ** state["time"])
                spread = (state["second"] / (1 - 0.999 ** state["time"])).sqrt()  # <- BRR209
                p -= group["lr"] * mean / (spread + 1e-8)  # <- BRR209


def net() -> nn.Module:
    layers = [part for _ in range(24) for part in (nn.Linear(192, 192), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(192, 1))


def train(num_steps: int) -> None:
    model = net()
    optimizer = Adam(model.parameters())
    for step in range(num_steps):
        rows = torch.randn(32, 192)
        loss = nn.functional.mse_loss(model(rows).squeeze(1), rows.mean(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
