"""Loads torch, and ends before its first step: as its argument says, by an error, or because it has none."""

import sys

import torch

if sys.argv[1:] == ["dies"]:
    raise FileNotFoundError("no data")
print(torch.ones(2).sum().item())
