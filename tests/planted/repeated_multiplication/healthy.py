"""Compounds interest on many accounts, a year in one pass."""

import argparse

import torch
from torch import nn

RATE, MONTHS = 1.002, 12


class Year(nn.Module):
    def forward(self, balance: torch.Tensor) -> torch.Tensor:
        return balance * RATE**MONTHS


@torch.inference_mode()
def simulate(num_steps: int) -> None:
    year = Year()
    balance = torch.rand(4_000_000)
    for step in range(num_steps):
        balance = year(balance)
        if step % 50 == 0:
            balance = balance / balance.max()
            print(f"year {step:4d}  mean {balance.mean().item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    simulate(args.steps)
