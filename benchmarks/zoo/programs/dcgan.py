"""The loop of PyTorch's DCGAN tutorial on random pictures: real and fake batches apart, two optimizers."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
NZ, NGF, NDF = 64, 32, 32
netG = nn.Sequential(
    nn.ConvTranspose2d(NZ, NGF * 4, 4, 1, 0, bias=False),
    nn.BatchNorm2d(NGF * 4),
    nn.ReLU(True),
    nn.ConvTranspose2d(NGF * 4, NGF * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(NGF * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(NGF * 2, NGF, 4, 2, 1, bias=False),
    nn.BatchNorm2d(NGF),
    nn.ReLU(True),
    nn.ConvTranspose2d(NGF, 3, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(3, NDF, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(NDF, NDF * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(NDF * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(NDF * 2, 1, 8, 2, 0, bias=False),
    nn.Flatten(),
    nn.LazyLinear(1),
    nn.Sigmoid(),
)
netD(torch.zeros(2, 3, 32, 32))
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
dataloader = DataLoader(TensorDataset(torch.rand(16 * 120, 3, 32, 32) * 2 - 1), batch_size=16, shuffle=True)
for epoch in range(1):
    for i, (real,) in enumerate(dataloader):
        netD.zero_grad()
        errD_real = criterion(netD(real).view(-1), torch.ones(16))
        errD_real.backward()
        fake = netG(torch.randn(16, NZ, 1, 1))
        errD_fake = criterion(netD(fake.detach()).view(-1), torch.zeros(16))
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        errG = criterion(netD(fake).view(-1), torch.ones(16))
        errG.backward()
        optimizerG.step()
        if i % 40 == 0:
            print(f"{i} D {errD_real.item() + errD_fake.item():.3f} G {errG.item():.3f}")
