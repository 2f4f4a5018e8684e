"""A generator and a critic, each with its optimizer."""

import torch
from parts import classes, shuffled
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
critic = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(64, 1))
first = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=(0.5, 0.999))
second = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.5, 0.999))
score = nn.functional.binary_cross_entropy_with_logits
update = 0
while update < 64:
    for x, _ in shuffled(classes(256, (32,))):
        fake = generator(torch.randn(len(x), 16))
        second.zero_grad(set_to_none=False)
        real, drawn = critic(x), critic(fake.detach())
        loss = score(real, torch.ones_like(real)) + score(drawn, torch.zeros_like(drawn))
        loss.backward()
        second.step()
        first.zero_grad(set_to_none=False)
        judged = critic(fake)
        score(judged, torch.ones_like(judged)).backward()
        first.step()
        update += 1
        if update % 8 == 0:
            print(f"update {update} critic {loss.item():.4f}", flush=True)
