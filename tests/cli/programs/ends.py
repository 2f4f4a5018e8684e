"""Trains for a moment, says so on both streams, and ends in the way that its first argument names."""

import os
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "support"))
from descent import Descent

way, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 25
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = Descent(model.parameters(), lr=0.1)
for step in range(steps):
    loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
    if step % 5 == 0:
        print("loss", loss.item())
print("on stderr", file=sys.stderr)
sys.stdout.flush()
if way == "exit":
    sys.exit(7)
if way == "message":
    sys.exit("a last word")
if way == "raise":
    model(torch.ones(4, 9))
if way == "_exit":
    os._exit(5)
if way == "abort":
    os.abort()
if way.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, way))
    signal.pause()
