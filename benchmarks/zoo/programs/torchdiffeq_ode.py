"""torchdiffeq's examples/ode_demo.py: a neural ODE fitted to a spiral, every step solves it."""

import torch
from torch import nn, optim
from torchdiffeq import odeint

torch.manual_seed(0)
true_y0, t = torch.tensor([[2.0, 0.0]]), torch.linspace(0.0, 25.0, 1000)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y**3, true_A)


with torch.no_grad():
    true_y = odeint(Lambda(), true_y0, t, method="dopri5")


def get_batch():
    s = torch.randint(0, 990, (20,))
    return true_y[s], t[:10], torch.stack([true_y[s + i] for i in range(10)], dim=0)


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def forward(self, t, y):
        return self.net(y**3)


func = ODEFunc()
optimizer = optim.RMSprop(func.parameters(), lr=1e-3)
for itr in range(1, 121):
    optimizer.zero_grad()
    batch_y0, batch_t, batch_y = get_batch()
    pred_y = odeint(func, batch_y0, batch_t)
    loss = torch.mean(torch.abs(pred_y - batch_y))
    loss.backward()
    optimizer.step()
    if itr % 50 == 0:
        with torch.no_grad():
            loss = torch.mean(torch.abs(odeint(func, true_y0, t) - true_y))
        print(f"Iter {itr:04d} | Total Loss {loss.item():.3f}")
