"""Tags sequences with torch's own recurrent layer."""

import argparse

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, num_inputs: int = 24, width: int = 64) -> None:
        super().__init__()
        self.cells, self.tags = nn.LSTM(num_inputs, width, batch_first=True), nn.Linear(width, 5)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        seen, _ = self.cells(series)
        return self.tags(seen)


def train(num_steps: int) -> None:
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorded = torch.randn(2000, 60, 24)
    for step in range(num_steps):
        series = recorded[torch.randint(0, len(recorded), (16,))]
        tags = series[..., :5].argmax(dim=-1)
        loss = nn.functional.cross_entropy(model(series).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps)
