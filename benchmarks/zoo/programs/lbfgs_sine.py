"""PyTorch's examples/time_sequence_prediction: LBFGS over a closure that walks LSTM cells through time in Python."""

import numpy as np
import torch
from torch import nn, optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 51)
        self.lstm2 = nn.LSTMCell(51, 51)
        self.linear = nn.Linear(51, 1)

    def forward(self, input):
        outputs = []
        h_t = c_t = torch.zeros(input.size(0), 51, dtype=torch.double)
        h_t2 = c_t2 = torch.zeros(input.size(0), 51, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            outputs += [self.linear(h_t2)]
        return torch.cat(outputs, dim=1)


torch.manual_seed(0)
starts = np.random.default_rng(0).integers(-80, 80, 20).reshape(20, 1)
data = torch.from_numpy(np.sin((np.arange(200) + starts) / 20))
input, target = data[3:, :-1], data[3:, 1:]
seq = Sequence().double()
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=5)
for i in range(8):

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(input), target)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    print(f"step {i} loss {loss.item():.4f}")
