"""Trains a policy in a simulator that answers after some milliseconds."""

import argparse
import time

import torch
from torch import nn

LATENCY = 0.012  # seconds until the simulator answers


def simulate(actions: torch.Tensor) -> torch.Tensor:
    time.sleep(LATENCY)  # <- BRR315
    return torch.randn(len(actions), 48) + actions.mean()


def train(num_steps: int) -> None:
    policy = nn.Sequential(nn.Linear(48, 384), nn.Tanh(), nn.Linear(384, 384), nn.Tanh(), nn.Linear(384, 48))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
    states = torch.randn(256, 48)
    for step in range(num_steps):
        actions = policy(states)
        loss = (actions - states).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        states = simulate(actions.detach())
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
