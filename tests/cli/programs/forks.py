"""Trains in a forked child, in a spawned one and itself."""

import multiprocessing
import os

import torch


def train(steps=30):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    return model.weight.sum().item()


def report(name):
    print(name, train(), flush=True)


if __name__ == "__main__":
    print("parent", train(10), flush=True)
    child = os.fork()
    if child == 0:
        report("forked")
        os._exit(0)
    os.waitpid(child, 0)
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=report, args=(method,))
        process.start()
        process.join()
    report("parent")
