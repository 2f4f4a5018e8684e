# limit: data 1.27GiB | holder: parameters,optimizer state,gradients | first: fused_optimizer,optimizer_8bit
import torch
from torch import nn

model = nn.Sequential(nn.Embedding(200_000, 256), nn.Linear(256, 256))
optimizer = torch.optim.Adam(model.parameters())  # fix[fused_optimizer]: optimizer = torch.optim.Adam(model.parameters(), fused=True)
# fix[optimizer_8bit]: optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randint(0, 200_000, (64,))).square().mean().backward()
    optimizer.step()  # dies
    optimizer.zero_grad()
