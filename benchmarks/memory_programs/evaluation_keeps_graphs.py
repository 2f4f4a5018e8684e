# limit: data 1.5GiB | holder: activations | first: no_grad,keep_numbers
import torch
from torch import nn

model = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 3, 64, 64)).square().mean().backward()
    optimizer.step()
model.eval()
outputs = []
for _ in range(60):
    pictures = torch.randn(16, 3, 64, 64)
    # fix[no_grad]: torch.set_grad_enabled(False)
    # fix[keep_numbers]: outputs.append(model(pictures).detach()); continue
    outputs.append(model(pictures))  # dies
print(torch.cat(outputs).argmax(1).float().mean())
