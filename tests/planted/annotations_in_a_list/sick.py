"""Boxes of an annotated film: what is in them is told by their size and place, whole scenes at a time."""

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Annotations(Dataset):
    """All annotations of a film as its file has them."""

    def __init__(self, num_boxes: int = 400_000) -> None:
        draw = random.Random(0)
        self.boxes = [  # <- BRR604
            {"name": f"scene{number // 50}/{number}", "box": [draw.random() for _ in range(8)], "kind": number % 4}
            for number in range(num_boxes)
        ]

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        found = self.boxes[index]  # <- BRR604
        return torch.tensor(found["box"]), found["kind"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=900)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Annotations(), batch_size=64, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(8, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (boxes, kinds) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(boxes), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
        if step + 1 == args.steps:
            break


if __name__ == "__main__":
    main()
