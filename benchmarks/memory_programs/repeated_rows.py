# limit: data 1.5GiB | holder: inputs,parameters,other tensors | first: repeated_copy
import torch
from torch import nn

query = nn.Parameter(torch.randn(1, 4096, 64))
optimizer = torch.optim.SGD([query], lr=0.1)
for _ in range(3):
    x = torch.randn(2048, 1, 64)
    many = query.repeat(2048, 1, 1)  # dies, fix[repeated_copy]: many = query.expand(2048, -1, -1)
    loss = torch.bmm(x, many.transpose(1, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
