"""Tags sequences with a recurrent cell of its own, one time step after the other."""

import argparse

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, num_inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(num_inputs + width, 4 * width)

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, cell = state
        enter, forget, new, leave = self.gates(torch.cat([x, hidden], dim=1)).chunk(4, dim=1)  # <- BRR301
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)  # <- BRR301
        return torch.sigmoid(leave) * torch.tanh(cell), cell  # <- BRR301


class Tagger(nn.Module):
    def __init__(self, num_inputs: int = 24, width: int = 64) -> None:
        super().__init__()
        self.cell, self.width, self.tags = Cell(num_inputs, width), width, nn.Linear(width, 5)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        hidden = cell = series.new_zeros(len(series), self.width)
        seen = []
        for x in series.unbind(dim=1):
            hidden, cell = self.cell(x, (hidden, cell))  # <- BRR301
            seen.append(hidden)
        return self.tags(torch.stack(seen, dim=1))


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
