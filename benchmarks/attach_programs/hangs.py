"""Two threads that each wait for the lock that the other one holds, after some steps."""

import threading
import time

import torch

first, second = threading.Lock(), threading.Lock()


def writes_metrics():
    with second:
        time.sleep(1)
        with first:
            pass


def train():
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(64, 256)).square().mean().backward()
        optimizer.step()
    with first:
        threading.Thread(target=writes_metrics).start()
        time.sleep(0.5)
        with second:  # here
            print("done")


train()
