"""Evaluate the digits MLP under noise; the scores go to metrics.json."""

import json

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

BATCHES = 80
WIDTH = 2048


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.out(x)


def load_data(train):
    x, y = load_digits(return_X_y=True)
    x, y = (x[:900], y[:900]) if train else (x[900:], y[900:])
    return torch.from_numpy(x / 16).float(), torch.from_numpy(y)


def noisy(x, scale=0.3):
    return x + scale * torch.from_numpy(np.random.randn(*x.shape)).float()


class Evaluator:
    def __init__(self, model, x, y):
        self.model, self.x, self.y = model.eval(), x, y
        self.confusion = np.zeros((10, 10), dtype=int)

    def run(self, batches, size=250):
        for _ in range(batches):
            rows = np.random.choice(len(self.x), size)
            with torch.no_grad():
                guess = self.model(noisy(self.x[rows])).argmax(dim=1)
            np.add.at(self.confusion, (self.y[rows].numpy(), guess.numpy()), 1)

    def scores(self):
        hits = np.diag(self.confusion)
        precision, recall = hits / self.confusion.sum(0).clip(1), hits / self.confusion.sum(1).clip(1)
        f1 = 2 * precision * recall / (precision + recall).clip(1e-9)
        return {"test": {"f1": f1.mean(), "accuracy": hits.sum() / self.confusion.sum()}}


if __name__ == "__main__":
    import sys

    np.random.seed(0)
    mlp = MLP()
    mlp.load_state_dict(torch.load("mlp.pt", weights_only=True))
    evaluator = Evaluator(mlp, *load_data(train=False))
    evaluator.run(int(sys.argv[1]) if len(sys.argv) > 1 else BATCHES)
    with open("metrics.json", "w") as file:
        json.dump(evaluator.scores(), file, indent=2)
    print("wrote metrics.json")
