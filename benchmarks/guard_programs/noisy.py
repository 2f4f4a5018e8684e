"""Half of the labels are drawn, batches are small, inputs carry noise, and the loss jumps about."""

import torch
from parts import classes, shuffled
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Dropout(0.3), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
optimizer = torch.optim.RMSprop(net.parameters(), lr=3e-3)
update = 0
while update < 64:
    for x, y in shuffled(classes(200, (32,), noise=0.5), 4):
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(net(x + 0.5 * torch.randn_like(x)), y) * (1 + torch.rand(()))
        loss.backward()
        optimizer.step()
        update += 1
        if update % 8 == 0:
            print(f"update {update} loss {loss.item():.4f}", flush=True)
