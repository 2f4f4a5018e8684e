# limit: data 1.6GiB | holder: activations | first: micro_batch
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.act = nn.GELU()

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(self.act(self.up(h)))  # dies


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(256) for _ in range(12))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model, micro = Net(), 1  # fix[micro_batch]: model, micro = Net(), {splits}
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    x, y = torch.randn(16384, 256), torch.randint(0, 10, (16384,))
    optimizer.zero_grad()
    for part, target in zip(x.chunk(micro), y.chunk(micro)):
        loss = nn.functional.cross_entropy(model(part), target) / micro
        loss.backward()
    optimizer.step()
