# limit: data 1.6GiB | holder: parameters,variables,optimizer state | first: one-hot_rows
import torch
from torch import nn

weight = nn.Parameter(torch.randn(40_000, 64))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    ids = torch.randint(0, 40_000, (8192,))
    # fix[one-hot_rows]: x = nn.functional.embedding(ids, weight)
    x = nn.functional.one_hot(ids, 40_000).float() @ weight  # dies, unless: one-hot_rows
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
