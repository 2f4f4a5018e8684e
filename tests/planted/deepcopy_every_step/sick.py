"""Keeps a copy of the weights to go back to when the loss explodes."""

import argparse
import copy

import torch
from torch import nn


class CarefulTrainer:
    def __init__(self, model: nn.Module, lr: float) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, fused=True)
        self.last_good = copy.deepcopy(self.state())
        self.usual_loss = float("inf")

    def state(self) -> tuple[dict, dict]:
        return self.model.state_dict(), self.optimizer.state_dict()

    def step(self, index: int, x: torch.Tensor, y: torch.Tensor) -> float:
        loss = nn.functional.mse_loss(self.model(x), y)
        if loss > 10 * self.usual_loss:
            self.model.load_state_dict(self.last_good[0])
            self.optimizer.load_state_dict(self.last_good[1])
            return self.usual_loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.usual_loss = loss.item()
        self.last_good = copy.deepcopy(self.state())  # <- BRR303
        return self.usual_loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    width = 1024
    layers = [nn.Linear(64, width), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    trainer = CarefulTrainer(model, lr=0.002)
    table = 3 * torch.randn(112_000, 64) + 1
    table = (table - table.mean(dim=0)) / table.std(dim=0)
    for index in range(args.steps):
        x = table[torch.randint(0, len(table), (8,))]
        loss = trainer.step(index, x, x.square().mean(dim=1, keepdim=True))
        if index % 50 == 0:
            print(f"step {index:4d}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
