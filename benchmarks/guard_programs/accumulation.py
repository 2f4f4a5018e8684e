"""A transformer with gradients of four batches, clipping, and a warm-up."""

import torch
from parts import Block, rows, shuffled
from torch import nn

V, W, EVERY = 100, 32, 4
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(V, W), Block(W), Block(W), nn.LayerNorm(W), nn.Linear(W, V))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
loader = shuffled(rows(250, 12, V), 8)
update = number = 0
while update < 64:
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x).view(-1, V), y.view(-1)) / EVERY
        loss.backward()
        number += 1
        if number % EVERY:
            continue
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=False)
        update += 1
        if update % 8 == 0:
            print(f"update {update} loss {loss.item() * EVERY:.4f}", flush=True)
