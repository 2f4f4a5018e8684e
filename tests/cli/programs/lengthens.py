"""A training that keeps its losses: its steps become longer. It sleeps in each, and sends gobrrr signals at some."""

import os
import signal
import sys
import time

import torch

num_steps, sleep_s, asks_at = int(sys.argv[1]), float(sys.argv[2]), [int(word) for word in sys.argv[3:]]
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, losses = torch.randn(32, 64), []
for step in range(num_steps):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    losses = [*losses, loss.detach()][:300]
    mean = torch.stack(losses).mean()
    time.sleep(sleep_s)
    if step in asks_at:
        os.kill(os.getppid(), signal.SIGUSR2)
print("made", num_steps)
