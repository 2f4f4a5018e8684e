"""A classifier of images that answers requests; nothing that it says comes back as an input."""

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
        self.up, self.head = nn.Linear(16, 64), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(torch.relu(self.up(self.body(x).mean((2, 3)))))


@torch.no_grad()
def main(requests=200):
    torch.manual_seed(0)
    model = Net().eval()
    for number in range(requests):
        found = model(torch.randn(8, 3, 12, 12)).softmax(-1)
        print(f"request {number}: {found.argmax(-1).tolist()}", flush=True)


if __name__ == "__main__":
    main()
