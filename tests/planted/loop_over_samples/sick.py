"""Trains a pooled sequence encoder with a small trainer of the Lightning kind."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 6)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(series).mean(dim=-2))


class SeriesModule:
    """What a user of the trainer writes."""

    def __init__(self) -> None:
        self.encoder = Encoder()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_index: int) -> torch.Tensor:
        series, labels = batch
        logits = torch.stack([self.encoder(one) for one in series])  # <- BRR301
        return F.cross_entropy(logits, labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.encoder.parameters(), lr=0.05)


class Trainer:
    """Calls the module's hooks in the usual order."""

    def __init__(self, max_steps: int, log_every: int = 50) -> None:
        self.max_steps, self.log_every = max_steps, log_every

    def fit(self, module: SeriesModule, batches) -> None:
        optimizer = module.configure_optimizers()
        for index, batch in zip(range(self.max_steps), batches):
            optimizer.zero_grad()
            loss = module.training_step(batch, index)
            loss.backward()
            optimizer.step()
            if index % self.log_every == 0:
                print(f"step {index:4d}  loss {loss.item():.4f}")


def series_batches(batch_size: int, length: int):
    recorded = torch.randn(4600, length, 32).cumsum(dim=1)
    recorded = (recorded - recorded.mean(dim=0)) / recorded.std(dim=0)
    while True:
        series = recorded[torch.randint(0, len(recorded), (batch_size,))]
        yield series, series.mean(dim=1)[:, :6].argmax(dim=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    Trainer(args.steps).fit(SeriesModule(), series_batches(batch_size=128, length=48))
