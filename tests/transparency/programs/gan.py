"""Two models, two optimizers, the discriminator updated twice per generator update."""

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch import nn

numpy.random.seed(0)
torch.manual_seed(5)
g = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
d = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16)), nn.LeakyReLU(0.2), nn.Linear(16, 1))
for_g = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
for_d = torch.optim.RMSprop(d.parameters(), lr=2e-4)
bce = nn.BCEWithLogitsLoss()
for step in range(130):
    for _ in range(2):
        real, fake = torch.randn(8, 8), g(torch.randn(8, 4)).detach()
        loss_d = bce(d(real), torch.ones(8, 1)) + bce(d(fake), torch.zeros(8, 1))
        for_d.zero_grad()
        loss_d.backward()
        for_d.step()
    loss_g = bce(d(g(torch.randn(8, 4))), torch.ones(8, 1))
    for_g.zero_grad()
    loss_g.backward()
    for_g.step()
    fingerprint.losses.append([loss_d.item(), loss_g.item()])
fingerprint.end(g, d, for_g, for_d)
