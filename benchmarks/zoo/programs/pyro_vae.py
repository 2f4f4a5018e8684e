"""Pyro's tutorial on the variational autoencoder: SVI with Trace_ELBO on pictures of digits' size."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import Adam
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pyro.set_rng_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 400), nn.Softplus())
        self.loc, self.scale = nn.Linear(400, 50), nn.Linear(400, 50)
        self.decoder = nn.Sequential(nn.Linear(50, 400), nn.Softplus(), nn.Linear(400, 784), nn.Sigmoid())

    def model(self, x):
        pyro.module("decoder", self.decoder)
        with pyro.plate("data", x.shape[0]):
            z = pyro.sample("latent", dist.Normal(x.new_zeros(x.shape[0], 50), 1.0).to_event(1))
            pyro.sample("obs", dist.Bernoulli(self.decoder(z)).to_event(1), obs=x)

    def guide(self, x):
        pyro.module("encoder", self)
        with pyro.plate("data", x.shape[0]):
            hidden = self.encoder(x)
            pyro.sample("latent", dist.Normal(self.loc(hidden), self.scale(hidden).exp()).to_event(1))


images = (torch.rand(12800, 784) < 0.3).float()
train_loader = DataLoader(TensorDataset(images), batch_size=128, shuffle=True)
vae = VAE()
svi = SVI(vae.model, vae.guide, Adam({"lr": 1e-3}), loss=Trace_ELBO())
for epoch in range(2):
    total = 0.0
    for (x,) in train_loader:
        total += svi.step(x)
    print(f"epoch {epoch} loss {total / len(images):.1f}")
