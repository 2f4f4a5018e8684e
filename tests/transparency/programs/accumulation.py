"""Four micro-steps per update, gradient clipping, a schedule, mixed precision on the CPU."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch import nn

numpy.random.seed(0)
torch.manual_seed(4)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=200)
for step in range(130):
    for micro in range(4):
        x = torch.randn(4, 16)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).square().mean() / 4
        loss.backward()
        fingerprint.losses.append(loss.item())
    fingerprint.losses.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
fingerprint.add("schedule", repr(scheduler.state_dict()))
fingerprint.end(model, optimizer)
