# limit: data 1.5GiB | holder: variables,parameters,other tensors | first: repeated_copy
import torch
from torch import nn

query = nn.Parameter(torch.randn(1, 4096, 64))
optimizer = torch.optim.SGD([query], lr=0.1)
for _ in range(3):
    x = torch.randn(2048, 1, 64)
    # fix[repeated_copy]: loss = (x @ query.transpose(1, 2)).square().mean()
    many = query.repeat(2048, 1, 1)  # dies, unless: repeated_copy
    loss = torch.bmm(x, many.transpose(1, 2)).square().mean()  # unless: repeated_copy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
