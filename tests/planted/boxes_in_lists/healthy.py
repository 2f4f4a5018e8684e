"""Scenes of a few dozen boxes each, from which a small network tells what kind of scene it is."""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

MOST = 40


class Scenes(Dataset):
    def __init__(self, num_scenes: int = 4096) -> None:
        draw = torch.Generator().manual_seed(0)
        self.sizes = torch.randint(8, MOST, (num_scenes,), generator=draw).tolist()
        self.boxes = torch.rand(num_scenes, MOST, 4, generator=draw)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        boxes = self.boxes[index, : self.sizes[index]]
        areas = (boxes[:, 2] * boxes[:, 3]).unsqueeze(1)
        return boxes.clone(), areas, index % 4


def collate(
    scenes: list[tuple[torch.Tensor, torch.Tensor, int]],
) -> tuple[torch.Tensor, torch.Tensor, list[int], torch.Tensor]:
    """Scenes have different numbers of boxes: all go one after the other, and how many are whose."""
    boxes, areas, kinds = zip(*scenes, strict=True)
    return torch.cat(boxes), torch.cat(areas), [len(each) for each in boxes], torch.tensor(kinds)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU())
        self.all = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, boxes: torch.Tensor, areas: torch.Tensor) -> torch.Tensor:
        return self.all(self.each(torch.cat([boxes, areas], 2)).amax(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Scenes(), batch_size=64, shuffle=True, collate_fn=collate, num_workers=1, persistent_workers=True
    )
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    step = 0
    while step < args.steps:
        for boxes, areas, sizes, kinds in loader:
            boxes, areas = boxes.split(sizes), areas.split(sizes)
            boxes, areas = pad_sequence(boxes, batch_first=True), pad_sequence(areas, batch_first=True)
            loss = nn.functional.cross_entropy(net(boxes, areas), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}")
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
