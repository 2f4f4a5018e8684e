"""A skorch classifier on a table: the default iterator takes the rows one by one."""

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 5))

    def forward(self, X):
        return self.layers(X)


torch.manual_seed(0)
draw = np.random.default_rng(0)
X = draw.normal(size=(100000, 40)).astype(np.float32)
y = (X[:, :5].argmax(1)).astype(np.int64)
net = NeuralNetClassifier(
    Net, criterion=nn.CrossEntropyLoss, max_epochs=3, lr=0.1, batch_size=1024, iterator_train__shuffle=True, verbose=0
)
net.fit(X, y)
print(f"accuracy {net.score(X, y):.2f}")
