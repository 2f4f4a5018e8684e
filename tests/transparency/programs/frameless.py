"""Modules that C calls: a bare thread, a weak reference's callback, a finalizer, a signal, the interpreter's end."""

import _thread
import atexit
import gc
import signal
import weakref

from fingerprint import fingerprint  # isort: skip

import numpy
import torch

numpy.random.seed(0)
torch.manual_seed(6)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
called = []


class Noting(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, *given):
        called.append(self.name)
        return torch.ones(1)


class Last(torch.nn.Module):
    def forward(self):
        print("the interpreter ends", flush=True)


class Thing:
    pass


class Dying:
    def __del__(self):
        Noting("finalizer")()


dead, by_map = Noting("dead"), Noting("map")
bell = Noting("signal")
signal.signal(signal.SIGUSR1, bell)
atexit.register(Last())
for step in range(160):
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fingerprint.losses.append(loss.item())
    thing = Thing()
    reference = weakref.ref(thing, dead)
    del thing
    list(map(by_map, [1]))
    if step % 10 == 0:
        done = _thread.allocate_lock()
        done.acquire()
        thread = Noting("thread")
        thread.register_forward_hook(lambda *_, done=done: done.release())
        _thread.start_new_thread(thread, ())
        done.acquire()
        signal.raise_signal(signal.SIGUSR1)
        loop = [Dying()]
        loop.append(loop)
        del loop
        gc.collect()
fingerprint.add("called", called)
fingerprint.end(model, optimizer)
