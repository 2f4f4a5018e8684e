"""A small transformer on sequences of a random automaton, with short sequences first or not."""

import torch
from torch import nn
from torch.nn import functional as F

WARM_UP, STEPS, LENGTH, WORDS = 0, 120, 64, 16

torch.manual_seed(0)
rule = torch.randint(WORDS, (WORDS, WORDS))


def batch(rows=8):
    """Words that follow from the two before them, nine times in ten."""
    words = [torch.randint(WORDS, (rows,)) for _ in range(2)]
    for _ in range(LENGTH - 1):
        other = torch.rand(rows) < 0.1
        words.append(torch.where(other, torch.randint(WORDS, (rows,)), rule[words[-1], words[-2]]))
    return torch.stack(words, 1)


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.body = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 128, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(width, WORDS)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for layer in self.body:
            x = layer(x, mask, is_causal=True)
        return self.head(x)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(STEPS):
    ids = batch()
    if step < WARM_UP:
        ids = ids[:, : 1 + max(16, LENGTH * step // WARM_UP // 16 * 16)]
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

model.eval()
with torch.no_grad():
    held = batch(64)
    print(f"loss: {F.cross_entropy(model(held[:, :-1]).flatten(0, 1), held[:, 1:].flatten()).item():.4f}")
