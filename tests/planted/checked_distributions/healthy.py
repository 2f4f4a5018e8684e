"""A regression whose scales are learned, each with a prior: the most likely values by gradient descent."""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical, Dirichlet, Distribution, Gamma, HalfCauchy, Normal

Distribution.set_default_validate_args(False)


class Regression(nn.Module):
    def __init__(self, num_groups: int = 12) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.zeros(num_groups))
        self.slope = nn.Parameter(torch.zeros(num_groups))
        self.spread = nn.Parameter(torch.zeros(num_groups))
        self.noise = nn.Parameter(torch.zeros(1))
        self.share = nn.Parameter(torch.zeros(3))

    def log_prior(self) -> torch.Tensor:
        spread, noise = self.spread.exp(), self.noise.exp()
        share = self.share.softmax(dim=0)
        total = HalfCauchy(torch.ones(1)).log_prob(noise).sum()
        total = total + Gamma(torch.full((1,), 2.0), torch.ones(1)).log_prob(spread).sum()
        total = total + Dirichlet(torch.full((3,), 2.0)).log_prob(share)
        total = total + Normal(torch.zeros(1), spread).log_prob(self.level).sum()
        return total + Normal(torch.zeros(1), spread).log_prob(self.slope).sum()

    def forward(self, x: torch.Tensor, group: torch.Tensor, kind: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mean = self.level[group] + self.slope[group] * x
        seen = Normal(mean, self.noise.exp()).log_prob(y)
        drawn = Categorical(self.share.softmax(dim=0)).log_prob(kind)
        return -((seen + drawn).mean() + self.log_prior() / len(y))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, group, kind = torch.rand(600), torch.randint(0, 12, (600,)), torch.randint(0, 3, (600,))
    y = 0.3 * group.float() - 0.5 * x + 0.2 * torch.randn(600)
    model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(args.steps):
        loss = model(x, group, kind, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
