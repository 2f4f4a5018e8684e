"""A transformer that its author compiled already."""

import torch
from parts import Block, rows, shuffled
from torch import nn

V, W = 100, 32
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(V, W), Block(W, dropout=0.0), nn.LayerNorm(W), nn.Linear(W, V))
model = torch.compile(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(shuffled(rows(256, 12, V)).dataset, batch_size=16, shuffle=True, drop_last=True)
update = 0
while update < 64:
    for x, y in loader:
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(model(x).view(-1, V), y.view(-1))
        loss.backward()
        optimizer.step()
        update += 1
        if update % 8 == 0:
            print(f"update {update} loss {loss.item():.4f}", flush=True)
