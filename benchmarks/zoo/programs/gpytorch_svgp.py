"""Stochastic variational GP regression after gpytorch's tutorial, minibatches of a table."""

import gpytorch
import torch
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train_x = torch.rand(20000, 8)
train_y = torch.sin(train_x.sum(-1) * 3)


class GPModel(ApproximateGP):
    def __init__(self, inducing_points):
        distribution = CholeskyVariationalDistribution(inducing_points.size(0))
        strategy = VariationalStrategy(self, inducing_points, distribution, learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


model = GPModel(inducing_points=train_x[:300])
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model.train()
likelihood.train()
optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": likelihood.parameters()}], lr=0.01)
mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=train_y.size(0))
train_loader = DataLoader(TensorDataset(train_x, train_y), batch_size=256, shuffle=True)
for epoch in range(2):
    for x_batch, y_batch in train_loader:
        optimizer.zero_grad()
        loss = -mll(model(x_batch), y_batch)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.2f}")
