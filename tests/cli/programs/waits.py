"""Trains until it is told to stop: says which signals have come, leaves at the first SIGTERM."""

import signal
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent

come = []


def note(number, frame):
    come.append(signal.Signals(number).name)
    print("got", come[-1], flush=True)


for name in ("SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM"):
    signal.signal(getattr(signal, name), note)
model = torch.nn.Linear(2, 2)
optimizer = Descent(model.parameters(), lr=0.1)
print("ready", flush=True)
deadline = time.monotonic() + 60
while "SIGTERM" not in come and time.monotonic() < deadline:
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
print(" ".join(come), flush=True)
sys.exit(3)
