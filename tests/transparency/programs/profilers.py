"""A program with profilers of its own, old and new of torch and of the interpreter; it looks for a watcher in them."""

import cProfile
import sys
import warnings

from fingerprint import fingerprint  # isort: skip

import numpy
import torch
import torch.autograd.profiler_legacy as legacy
from torch.profiler import ProfilerActivity, profile

warnings.simplefilter("ignore")
numpy.random.seed(0)
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
seen = {"legacy": [], "stacks": [], "counts": [], "calls": 0}


def step():
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())


def note(frame, event, arg):
    seen["calls"] += event == "call" and frame.f_code.co_name == "forward" and "torch" in frame.f_code.co_filename


for _ in range(6):
    for _ in range(40):
        step()
    with legacy.profile() as old:
        step()
    seen["legacy"].append(sum(e.name == "aten::addmm" for e in old.function_events))
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as new:
        step()
        step()
    names = [e.name for e in new.events()]
    seen["counts"].append(sum(name == "aten::addmm" for name in names))
    seen["stacks"] += [name for name in names if "gobrrr" in name]
    sys.setprofile(note)
    step()
    sys.setprofile(None)
    own = cProfile.Profile()
    own.runcall(step)
    seen["counts"].append(sum("Linear" in str(entry.code) or "linear" in str(entry.code) for entry in own.getstats()))
fingerprint.add("seen", seen)
fingerprint.end(model, optimizer)
