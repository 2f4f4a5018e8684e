"""Compiles a sentence scorer; every batch is as long as its longest sentence."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

torch._dynamo.config.recompile_limit = 1000


class Scorer(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        vectors = torch.randn(75_000, width)  # stands for word vectors from a file
        vectors = vectors / vectors.norm(dim=1, keepdim=True)
        self.tokens = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.tokens(tokens)).mean(dim=(1, 2))


def sentence_batches(batch_size: int):
    while True:
        length = int(torch.randint(40, 400, ()))
        tokens = torch.randint(0, 75_000, (batch_size, length))
        yield tokens, tokens.float().mean(dim=1) / 75_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Scorer()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (tokens, wanted) in zip(range(args.steps), sentence_batches(16)):
        loss = F.mse_loss(compiled(tokens), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
