"""Tags short windows of sensor data with a model that was trained elsewhere."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
args = parser.parse_args()

torch.manual_seed(0)
tagger = nn.Sequential(nn.Linear(256, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 12))
tagger = tagger.eval()

counts = torch.zeros(12, dtype=torch.long)
with torch.no_grad():
    for step in range(args.steps):
        window = torch.randn(256, 256)
        tags = tagger(window).argmax(dim=1)
        counts += torch.bincount(tags, minlength=12)
        if step % 50 == 0:
            print(f"window {step:4d}  most frequent tag {counts.argmax().item()}")
