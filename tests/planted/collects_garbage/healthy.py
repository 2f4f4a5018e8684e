"""Learns to rank log lines; frees memory by hand to be safe."""

import argparse

import torch
from torch import nn


def read_log(num_lines: int) -> list[dict]:
    """The records that the examples are drawn from."""
    services = ("web", "db", "queue", "cron")
    return [{"id": i, "service": services[i % 4], "fields": [i % 7, i % 11, i % 13]} for i in range(num_lines)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    records = read_log(40_000)
    features = torch.randn(len(records), 180).exp()
    features = (features - features.mean(dim=0)) / features.std(dim=0)
    relevance = torch.tensor([sum(record["fields"]) / 28 for record in records])
    model = nn.Sequential(nn.Linear(180, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(args.steps):
        rows = torch.randint(0, len(records), (1024,))
        loss = nn.functional.mse_loss(model(features[rows]).squeeze(1), relevance[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
