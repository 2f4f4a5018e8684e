"""Top-1 and top-5 of a VGG that reads two-digit numbers made of scikit-learn's digits."""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

LAYERS = [64, 64, "pool", 128, 128, "pool", 256, 256, "pool"]


def make_layers(plan):
    layers, channels = [], 1
    for item in plan:
        if item == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, item, 3, padding=1), nn.BatchNorm2d(item), nn.ReLU(inplace=True)]
            channels = item
    return nn.Sequential(*layers)


class VGG(nn.Module):
    def __init__(self, num_classes=100):
        super().__init__()
        self.features = make_layers(LAYERS)
        self.classifier = nn.Sequential(
            nn.Linear(256 * 2 * 4, 512), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(512, num_classes)
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class Numbers(Dataset):
    """Pairs of digits side by side, with noise."""

    def __init__(self, size, train, noise=0.3):
        digits = load_digits()
        images = F.interpolate(torch.tensor(digits.images)[:, None].float() / 16, scale_factor=2, mode="bilinear")
        first, last = (0, 1000) if train else (1000, 1797)
        self.images, self.labels = images[first:last], torch.tensor(digits.target[first:last])
        self.pairs = torch.randint(len(self.images), (size, 2))
        self.noise = noise

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        left, right = self.pairs[index]
        image = torch.cat([self.images[left], self.images[right]], dim=2)
        return image + self.noise * torch.randn_like(image), self.labels[left] * 10 + self.labels[right]


def accuracy(output, target, topk=(1, 5)):
    hits = output.topk(max(topk), 1).indices == target[:, None]
    return [hits[:, :k].any(1).float().sum().item() for k in topk]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", nargs="?", default="vgg.pt")
    parser.add_argument("-n", type=int, default=2000)
    parser.add_argument("-b", type=int, default=50)
    args = parser.parse_args()

    torch.manual_seed(42)
    model = VGG()
    model.load_state_dict(torch.load(args.checkpoint, map_location="cpu"))
    model.eval()
    top1 = top5 = 0
    with torch.no_grad():
        for images, target in DataLoader(Numbers(args.n, train=False), batch_size=args.b):
            one, five = accuracy(model(images), target)
            top1 += one
            top5 += five
    print(f" * Acc@1 {100 * top1 / args.n:.3f} Acc@5 {100 * top5 / args.n:.3f}")
