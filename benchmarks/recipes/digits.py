"""Scikit-learn's digits, at 16 x 16: a student alone or with a teacher, layers frozen, small pictures first, and how
often it evaluates. What a recipe changes is one of the lines in capitals."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

DISTILLED, FROZEN_FROM, SMALL_UNTIL, EVALUATE_EVERY, EPOCHS, STUDENT = False, 99, 0, 1, 8, 12

torch.manual_seed(0)
digits = load_digits()
pictures = F.interpolate(
    torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, scale_factor=2, mode="bilinear"
)
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels))
train, test = order[:1000], order[1000:]


def net(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * width, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def fit(model, teacher=None):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        if epoch == FROZEN_FROM:
            model[0].requires_grad_(False)
            model[2].requires_grad_(False)
        for rows in train[torch.randperm(len(train))].split(50):
            x, y = pictures[rows] + 0.3 * torch.randn(len(rows), 1, 16, 16), labels[rows]
            if epoch < SMALL_UNTIL:
                x = F.avg_pool2d(x, 2)
            out = model(x)
            loss = F.cross_entropy(out, y)
            if teacher is not None:
                with torch.no_grad():
                    soft = (teacher(x) / 2).softmax(-1)
                loss = 0.3 * loss + 2.8 * F.kl_div((out / 2).log_softmax(-1), soft, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if (epoch + 1) % EVALUATE_EVERY == 0:
            accuracy(model)
    return model


@torch.no_grad()
def accuracy(model):
    noisy = pictures[test] + 0.3 * torch.randn(len(test), 1, 16, 16)
    return 100 * (model(noisy).argmax(-1) == labels[test]).float().mean().item()


student = fit(net(STUDENT), fit(net(12)) if DISTILLED else None)
print(f"accuracy: {sum(accuracy(student) for _ in range(5)) / 5:.3f}")
