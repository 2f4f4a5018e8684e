"""A compiled model and a compiled loss, and what the compiler counted: no new graph break, no new recompilation."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
import torch._dynamo
from torch import nn

numpy.random.seed(0)
torch.manual_seed(8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        for layer in self.layers:
            x = self.drop(torch.relu(layer(x)))
        return x


@torch.compile(backend="aot_eager")
def criterion(out, target):
    return (out - target).square().mean()


inner = Net()
model = torch.compile(inner, backend="aot_eager")
whole = torch.compile(Net(), backend="eager", fullgraph=True)
optimizer = torch.optim.AdamW([*model.parameters(), *whole.parameters()], lr=1e-3)
for step in range(130):
    x = torch.randn(8, 16)
    if step == 110:
        whole.eval()  # a recompilation of the program's own
    loss = criterion(model(x), whole(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())
counters = torch._dynamo.utils.counters
fingerprint.add("counters", {name: {str(k): v for k, v in counters[name].items()} for name in sorted(counters)})
fingerprint.end(inner, whole, optimizer)
