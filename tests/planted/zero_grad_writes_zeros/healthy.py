"""Online learning of a wide regression network from small batches."""

import argparse

import torch
from torch import nn


class OnlineLearner:
    def __init__(self, width: int = 1024, depth: int = 12) -> None:
        layers = []
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(width, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def learn(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = (self.model(x) - y).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    history = 2 * torch.randn(7400, 1024) + 5
    history = (history - history.mean(dim=0)) / history.std(dim=0)
    learner = OnlineLearner()
    for step in range(args.steps):
        x = history[torch.randint(0, len(history), (2,))]
        loss = learner.learn(x, x[:, :1])
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
