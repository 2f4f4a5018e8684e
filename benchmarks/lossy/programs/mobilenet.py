"""Top-1 error of a small MobileNet on turned digits."""

import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn import datasets


class ConvBNReLU(nn.Sequential):
    def __init__(self, cin, cout, kernel=3, stride=1, groups=1):
        super().__init__(
            nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU6(inplace=True),
        )


class InvertedResidual(nn.Module):
    def __init__(self, cin, cout, stride, expand=4):
        super().__init__()
        self.residual = stride == 1 and cin == cout
        hidden = cin * expand
        self.conv = nn.Sequential(
            ConvBNReLU(cin, hidden, kernel=1),
            ConvBNReLU(hidden, hidden, stride=stride, groups=hidden),
            nn.Conv2d(hidden, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


def mobilenet(num_classes=10):
    blocks = [
        InvertedResidual(a, b, s) for a, b, s in [(32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    ]
    return nn.Sequential(
        ConvBNReLU(1, 32), *blocks, ConvBNReLU(128, 512, kernel=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(512, num_classes),
    )  # fmt: skip


def get_data(train):
    bunch = datasets.load_digits()
    x = torch.as_tensor(bunch.images, dtype=torch.float).unsqueeze(1) / 16
    part = slice(None, 1100) if train else slice(1100, None)
    return F.interpolate(x[part], size=(16, 16), mode="bilinear"), torch.as_tensor(bunch.target[part])


def turn(x, most=30):
    """Each picture by its own angle, with some noise."""
    angles = [math.radians(random.uniform(-most, most)) for _ in range(len(x))]
    theta = torch.tensor([[[math.cos(a), -math.sin(a), 0], [math.sin(a), math.cos(a), 0]] for a in angles])
    x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
    return x + 0.2 * torch.randn_like(x)


def evaluate(net, x, y, batches, size=50):
    wrong = 0
    for _ in range(batches):
        rows = torch.randint(len(x), (size,))
        with torch.inference_mode():
            out = net(turn(x[rows]))
        wrong += (out.argmax(1) != y[rows]).sum().item()
    return wrong / (batches * size)


if __name__ == "__main__":
    import sys

    torch.manual_seed(0)
    random.seed(0)
    net = mobilenet()
    net.load_state_dict(torch.load("mobilenet.pt"))
    net.eval()
    x, y = get_data(train=False)
    error = evaluate(net, x, y, batches=int(sys.argv[1]) if sys.argv[1:] else 200)
    print("error: {:.2f} %".format(100 * error))
