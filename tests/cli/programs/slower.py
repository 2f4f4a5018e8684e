"""A training whose step sleeps in a function of its own, longer where it is told so."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent


def dawdle(seconds: float) -> None:
    time.sleep(seconds)


def main(seconds: float) -> None:
    model = torch.nn.Linear(64, 64)
    optimizer = Descent(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        dawdle(seconds)
        optimizer.step()
    print("trained")


main(float(sys.argv[1]))
