"""A small GPT that learns to write NumPy. It trains, and it is slower than it need be: see README.md.

python examples/gpt/train.py --steps 80
"""

from __future__ import annotations

import argparse
import math
import time

import torch
import torch.nn.functional as F
from corpus import Tokenizer, documents
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.num_heads, width // self.num_heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        mask = torch.tril(torch.ones(length, length, device=x.device))
        scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        y = weights @ v
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    """Attention and a perceptron, each on a residual branch."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, num_heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Embeddings, blocks, and a head that shares the embeddings' weights."""

    def __init__(self, vocabulary: int, length: int, width: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1), device=ids.device))
        return self.head(self.norm(self.blocks(x)))


class Texts(Dataset):
    """Pairs of a text's tokens and the same tokens one further on."""

    def __init__(self, texts: list[str], tokenizer: Tokenizer, length: int) -> None:
        self.texts, self.tokenizer, self.length = texts, tokenizer, length

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self.tokenizer.encode(self.texts[index])[: self.length + 1]
        ids = ids + [0] * (self.length + 1 - len(ids))
        return torch.tensor(ids[:-1]), torch.tensor(ids[1:])


def loss_of(model: GPT, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = model(x)
    return F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))


def clip_gradients(model: GPT, limit: float) -> float:
    """Scale the gradients so that their norm is at most `limit`; returns the norm."""
    total = 0.0
    for parameter in model.parameters():
        total += parameter.grad.norm().item() ** 2
    norm = math.sqrt(total)
    if norm > limit:
        for parameter in model.parameters():
            parameter.grad *= limit / (norm + 1e-6)
    return norm


def evaluate(model: GPT, loader: DataLoader) -> float:
    model.eval()
    losses = []
    for x, y in loader:
        losses.append(loss_of(model, x, y).item())
    model.train()
    return sum(losses) / len(losses)


def train(options: argparse.Namespace) -> list[float]:
    """Train for `options.steps` steps and return the loss of each."""
    torch.manual_seed(options.seed)
    texts = documents(options.documents, num_characters=5 * options.length)
    tokenizer = Tokenizer(texts)
    held_out = max(1, len(texts) // 20)
    batches = DataLoader(
        Texts(texts[held_out:], tokenizer, options.length), batch_size=options.batch_size, shuffle=True, drop_last=True
    )
    held_out_batches = DataLoader(Texts(texts[:held_out], tokenizer, options.length), batch_size=options.batch_size)
    model = GPT(len(tokenizer), options.length, options.width, options.heads, options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    losses: list[float] = []
    while len(losses) < options.steps:
        for x, y in batches:
            started = time.perf_counter()
            loss = loss_of(model, x, y)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            norm = clip_gradients(model, 1.0)
            optimizer.step()
            losses.append(loss.item())
            milliseconds = 1e3 * (time.perf_counter() - started)
            print(f"step {len(losses):4d}  loss {losses[-1]:.4f}  norm {norm:.2f}  {milliseconds:.0f} ms", flush=True)
            if len(losses) == options.steps:
                break
    print(f"held-out loss {evaluate(model, held_out_batches):.4f}")
    return losses


def options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=256, help="tokens in a sample")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


if __name__ == "__main__":
    train(options())
