# limit: data 1.5GiB | holder: activations | first: keep_numbers,no_grad
import torch
from torch import nn


def evaluate(model, batches):
    total = 0.0
    for x, y in batches:
        total += loss_of(model, x, y)  # fix[keep_numbers]: total += loss_of(model, x, y).item()
    return total / len(batches)


def loss_of(model, x, y):
    # fix[no_grad]: torch.set_grad_enabled(False)
    return nn.functional.cross_entropy(model(x), y)  # dies


model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss_of(model, torch.randn(32, 256), torch.randint(0, 10, (32,))).backward()
    optimizer.step()
print(evaluate(model, [(torch.randn(512, 256), torch.randint(0, 10, (512,))) for _ in range(200)]))
