# limit: data 1.5GiB | holder: activations | first: keep_numbers,no_grad
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1))
losses = []
for step in range(400):
    x = torch.randn(512, 512)
    # fix[no_grad]: torch.set_grad_enabled(False)
    loss = model(x).square().mean()  # dies
    losses.append(loss)  # fix[keep_numbers]: losses.append(loss.item())
print(float(sum(losses)))
