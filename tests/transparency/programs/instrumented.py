"""A program with instruments of its own: profiler, tracer, saved-tensor hooks, signal, warning and exit handlers."""

import atexit
import signal
import sys
import warnings

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile, schedule

numpy.random.seed(0)
torch.manual_seed(10)
warnings.filterwarnings("error", message="never")
warnings.simplefilter("once", ResourceWarning)
seen = {"packed": 0, "unpacked": 0, "traced": 0, "signals": 0, "profiles": [], "locals": []}
signal.signal(signal.SIGUSR1, lambda number, frame: seen.update(signals=seen["signals"] + 1))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
atexit.register(lambda: print("leaving", flush=True))


class Net(nn.Module):
    def __init__(self, width, depth):
        given = locals()
        del given["self"], given["__class__"]
        super().__init__()
        self.config = given
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x, gain=1.0):
        given = locals()
        given.pop("self")
        given.pop("x")
        seen["locals"].append(sorted(given))
        x = x * given["gain"]
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def pack(tensor):
    seen["packed"] += 1
    return tensor


def unpack(tensor):
    seen["unpacked"] += 1
    return tensor


def tracer(frame, event, arg):
    seen["traced"] += frame.f_code.co_name == "traced_function"
    return None


def traced_function():
    return 1


def step():
    loss = model(torch.randn(4, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())


def run(steps, rate=0.01):
    hyper = locals()
    for number in range(steps):
        step()
        if number % 10 == 0:
            signal.raise_signal(signal.SIGUSR1)
    seen["locals"].append(sorted(hyper))


model = Net(16, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run(40)
with saved_tensors_hooks(pack, unpack):  # around the loop: torch has only one innermost pair
    run(60)
for _ in range(10):
    with save_on_cpu():  # around the forward only
        step()
sys.settrace(tracer)
for _ in range(10):
    step()
    traced_function()
sys.settrace(None)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=20, warmup=1, active=2, repeat=3),
    on_trace_ready=lambda p: seen["profiles"].append(sorted({e.key for e in p.key_averages()})),
) as running:
    for _ in range(80):
        step()
        running.step()
for _ in range(5):
    with profile(activities=[ProfilerActivity.CPU]) as short:
        step()
    seen["profiles"].append(len(short.key_averages()))
fingerprint.add("seen", seen)
fingerprint.add("config", sorted(model.config))
fingerprint.end(model, optimizer)
