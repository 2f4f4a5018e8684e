"""Batch norm, dropout, a shared dataset, the default training loop."""

import random

from fingerprint import fingerprint  # isort: skip
from seen import digest  # isort: skip

import inspect
import pickle

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
random.seed(1)
np.random.seed(1)
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(20):
    for x, y in loader:
        noise = random.random() * 1e-3 + np.random.rand() * 1e-3
        loss = criterion(model(x + noise), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fingerprint.losses.append(loss.item())

iterator = iter(loader)
fingerprint.add(
    "types",
    {
        "iterator": f"{type(iterator).__module__}.{type(iterator).__qualname__}",
        "length": [len(iterator), len(loader), len(data)],
        "signatures": [
            str(inspect.signature(f))
            for f in (
                DataLoader.__iter__,
                DataLoader.__init__,
                nn.Module.__call__,
                optimizer.step,
                torch.Tensor.backward,
            )
        ],
        "call": [nn.Module.__call__.__qualname__, nn.Module.__call__ is nn.Module._wrapped_call_impl, callable(model)],
        "bound": [model.__call__.__func__ is nn.Module.__call__, model.__call__.__self__ is model],
        "pickled": digest(pickle.loads(pickle.dumps(model)).state_dict()),
        "pickles": len(pickle.dumps(optimizer)),
        "loader": sorted(vars(loader)),
        "isinstance": [isinstance(model, nn.Module), isinstance(loader, DataLoader)],
    },
)
fingerprint.end(model, optimizer)
