# limit: data 1.5GiB | holder: other tensors | first: keep_numbers,free_references
import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()).eval()
features = []
with torch.no_grad():
    for _ in range(200):
        pictures = torch.randn(8, 3, 64, 64)
        # fix[keep_numbers]: features.append(model(pictures).mean((2, 3))); continue
        # fix[free_references]: features.append(model(pictures).mean((2, 3))); continue
        features.append(model(pictures))  # dies
print(len(features))
