"""Parts that the programs share: data drawn once, attention written by hand, the loop."""

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def classes(num, shape, kinds=10, noise=0.0):
    """Inputs whose class can be learnt; a share of the labels is drawn."""
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(num, *shape, generator=draw)
    y = (x.flatten(1) @ torch.randn(x[0].numel(), kinds, generator=draw)).argmax(1)
    drawn = torch.rand(num, generator=draw) < noise
    return TensorDataset(x, torch.where(drawn, torch.randint(kinds, (num,), generator=draw), y))


def rows(num, length, vocabulary):
    """Tokens, the next of which follows from the one before; padded with 0."""
    draw = torch.Generator().manual_seed(8)
    x = torch.randint(1, vocabulary, (num, length), generator=draw)
    lengths = torch.randint(length // 2, length + 1, (num, 1), generator=draw)
    x[torch.arange(length)[None] >= lengths] = 0
    y = torch.where(x != 0, (x * 5 + 1) % vocabulary, -100)
    return TensorDataset(x, y)


def shuffled(data, size=16):
    return DataLoader(data, batch_size=size, shuffle=True)


class Attention(torch.nn.Module):
    """As in many repositories: products, a mask, softmax, dropout."""

    def __init__(self, width, heads=4, dropout=0.1):
        super().__init__()
        self.heads, self.qkv, self.out = heads, torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / (w // self.heads) ** 0.5
        causal = torch.ones(s, s, dtype=torch.bool).tril()
        scores = scores.masked_fill(~causal, float("-inf"))
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(b, s, w))


class Block(torch.nn.Module):
    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = Attention(width, dropout=dropout)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
            torch.nn.Dropout(dropout),
        )

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


def train(model, optimizer, data, loss_of, updates=64, every=8):
    """Epochs until so many updates are made, a held-out loss now and then (with its graph: nobody wrote no_grad)."""
    loader, update = shuffled(data), 0
    while update < updates:
        for x, y in loader:
            optimizer.zero_grad(set_to_none=False)
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            update += 1
            if update % every == 0:
                model.eval()
                print(f"update {update} loss {loss.item():.4f} held out {loss_of(model(x), y).item():.4f}", flush=True)
                model.train()
            if update == updates:
                return
