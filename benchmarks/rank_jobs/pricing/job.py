import os
import time

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ.get("STEPS", 400))
BATCH = 96


class Averages:
    def __init__(self, model, decays=(0.9, 0.99, 0.999)):
        self.model = model
        self.shadow = {d: {n: p.detach().double().clone() for n, p in model.named_parameters()}
                       for d in decays}

    def __call__(self, optimizer, args, kwargs):
        for decay, weights in self.shadow.items():
            for name, p in self.model.named_parameters():
                weights[name] = decay * weights[name] + (1 - decay) * p.detach().double()


def build():
    return nn.Sequential(
        nn.Linear(64, 768), nn.SiLU(),
        nn.Linear(768, 768), nn.SiLU(),
        nn.Linear(768, 768), nn.SiLU(),
        nn.Linear(768, 1))


def data(n=9600):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(n, 64, generator=g)
    w = torch.randn(64, 1, generator=g)
    y = torch.tanh(x @ w / 8) + 0.05 * torch.randn(n, 1, generator=g)
    return TensorDataset(x, y)


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(5)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(data(), batch_size=BATCH, shuffle=True, drop_last=True)
    if accelerator.is_main_process:
        optimizer.register_step_post_hook(Averages(model))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step = 0
    while step < STEPS:
        for x, y in loader:
            pred = model(x)
            loss = nn.functional.mse_loss(pred, y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"step {step:4d}  mse {loss.item():.4f}", flush=True)
            if step == STEPS:
                break
    model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)
    time.sleep(0.5)
    accelerator.end_training()


if __name__ == "__main__":
    main()
