# limit: data 1.3GiB | holder: activations | first: activation_checkpointing,micro_batch,bf16_autocast
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))) + x  # dies


stem, blocks, head = nn.Conv2d(3, 32, 3, padding=1), nn.ModuleList(Block(32) for _ in range(12)), nn.Linear(32, 10)
optimizer = torch.optim.SGD([*stem.parameters(), *blocks.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    x = stem(torch.randn(64, 3, 64, 64))  # fix[micro_batch]: x = stem(torch.randn(8, 3, 64, 64))
    for block in blocks:
        x = block(x)  # fix[activation_checkpointing]: x = checkpoint(block, x, use_reentrant=False)
    loss = head(x.mean((2, 3))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
