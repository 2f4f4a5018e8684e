"""What a program can see of its own results and surroundings."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import sys
import threading
import warnings

WATCHED = "gobrrr"


def digest(value: object) -> str:
    """A hash of the exact bytes of tensors, arrays and plain values, in any nest of containers."""
    found = hashlib.sha256()
    _feed(found, value)
    return found.hexdigest()[:16]


def _feed(found: hashlib._Hash, value: object) -> None:
    import torch

    if isinstance(value, torch.Tensor):
        flat = value.detach().contiguous().reshape(-1)
        found.update(f"{value.dtype}{tuple(value.shape)}{value.requires_grad}".encode())
        found.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif isinstance(value, dict):
        for key, item in value.items():
            found.update(repr(key).encode() if isinstance(key, (str, int)) else b"object")
            _feed(found, item)
    elif isinstance(value, (list, tuple)):
        found.update(f"{type(value).__name__}{len(value)}".encode())
        for item in value:
            _feed(found, item)
    elif type(value).__module__ == "numpy":
        found.update(value.tobytes())
    else:
        found.update(repr(value).encode())


def of_model(model) -> dict[str, object]:
    """Parameters, buffers, gradients, names, hooks: everything a module carries."""
    return {
        "params": digest(dict(model.named_parameters())),
        "buffers": digest(dict(model.named_buffers())),
        "grads": digest({name: p.grad for name, p in model.named_parameters() if p.grad is not None}),
        "versions": [t._version for t in (*model.parameters(), *model.buffers())],
        "keys": list(model.state_dict()),
        "hooks": [
            [len(getattr(m, name)) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]
            for m in model.modules()
        ],
        "attributes": sorted({name for m in model.modules() for name in vars(m)}),
        "types": [f"{type(m).__module__}.{type(m).__qualname__}" for m in model.modules()],
    }


def of_optimizer(optimizer) -> dict[str, object]:
    """State, groups, hooks and attributes of an optimizer."""
    state = optimizer.state_dict()
    return {
        "state": digest(state["state"]),
        "groups": repr(state["param_groups"]),
        "hooks": [len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks)],
        "step": f"{type(optimizer).step.__module__}.{type(optimizer).step.__qualname__}",
        "attributes": sorted(vars(optimizer)),
    }


def randomness() -> dict[str, object]:
    """The states of all three random streams."""
    import random

    import numpy
    import torch

    return {
        "python": digest(random.getstate()),
        "numpy": digest(list(numpy.random.get_state())),
        "torch": digest(torch.get_rng_state()),
        "seed": torch.initial_seed(),
    }


def process() -> dict[str, object]:
    """What the interpreter shows of this process."""
    main = sys.modules["__main__"]
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "executable": sys.executable,
        "flags": repr(sys.flags),
        "main": {name: repr(value).split(" at 0x")[0] for name, value in vars(main).items() if name.endswith("__")},
        "cwd": os.getcwd(),
        "environ": {name: value for name, value in os.environ.items() if name != "_"},
        "modules": sorted(name for name in sys.modules if name.split(".")[0] != WATCHED),
        "meta_path": [repr(finder).split(" at 0x")[0] for finder in sys.meta_path],
        "path_hooks": len(sys.path_hooks),
        "recursion": sys.getrecursionlimit(),
        "displayhook": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "unraisable": [sys.unraisablehook is sys.__unraisablehook__, threading.excepthook is threading.__excepthook__],
        "streams": [type(stream).__name__ for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "filters": [repr(f).split(" at 0x")[0] for f in warnings.filters],
        "showwarning": warnings.showwarning.__module__,
        "signals": {str(n): _handler(signal.getsignal(n)) for n in signal.valid_signals() if n < 32},
        "timers": [list(signal.getitimer(which)) for which in (signal.ITIMER_REAL, signal.ITIMER_PROF)],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count()],
        "umask": _umask(),
        "files": _open_files(),
    }


def _stack() -> list[object]:
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _handler(value: object) -> str:
    return _name(value) if callable(value) else repr(value)


def _name(value: object) -> str:
    return getattr(value, "__qualname__", repr(value))


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


_PASSING = ("pipe:", "socket:", "/proc/", "anon_inode:", "/dev/shm/", "/dev/zero")


def _open_files() -> list[str]:
    """Files that this process holds open, but for the watcher's own recording and what changes from run to run."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if ".journal" not in target and not target.startswith(_PASSING):
            found.append(target)
    return sorted(found)


def torch_flags() -> dict[str, object]:
    """Torch's global switches."""
    import torch

    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": [torch.are_deterministic_algorithms_enabled(), torch.get_deterministic_debug_mode()],
        "modes": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "defaults": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "autocast": [torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()],
        "cudnn": [torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "mkldnn": torch.backends.mkldnn.enabled,
        "denormals": bool((torch.full((1,), 1.2e-38) * 0.5).eq(0).item()),
        "function_modes": torch._C._len_torch_function_stack(),
        "dispatch_modes": torch._C._len_torch_dispatch_stack(),
    }


def instruments() -> dict[str, object]:
    """Tracers, profilers, threads and their turns, which a watcher may have while it looks closer, not when done."""
    import torch

    return {
        "switch_interval": sys.getswitchinterval(),
        "tracing": [_name(sys.gettrace()), _name(sys.getprofile()), _name(threading.gettrace())],
        "frames": [_name(frame.f_trace) for frame in _stack()],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "profiler": [torch._C._autograd._profiler_enabled(), torch.autograd.profiler._is_profiler_enabled],
        "saved": _saved_hooks(),
    }


def _saved_hooks() -> str:
    import torch

    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return "none" if top is None else _name(top[0])


def seams() -> dict[str, object]:
    """The places where a watcher could hold on to torch, by identity where a plain run knows it."""
    import torch
    from torch.autograd.profiler import profile, record_function
    from torch.optim import optimizer
    from torch.utils.data import _utils, dataloader

    fetch = _utils.fetch
    owners = (
        torch.nn.Module, torch.Tensor, torch.autograd.Function, torch.utils.data.Dataset, record_function, profile,
        optimizer.Optimizer, torch.optim.SGD, torch.optim.AdamW, dataloader.DataLoader, dataloader._BaseDataLoaderIter,
        dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter,
        fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher, torch.autograd.Variable, type(torch.autograd.Variable),
    )  # fmt: skip
    return {
        "attributes": {
            f"{owner.__qualname__}.{name}": f"{type(value).__name__} {_origin(value)}"
            for owner in owners
            for name, value in vars(owner).items()
            if callable(value) or hasattr(value, "__get__")
        },
        "optimizer": [len(optimizer._global_optimizer_pre_hooks), len(optimizer._global_optimizer_post_hooks)],
        "module": [
            len(getattr(torch.nn.modules.module, name))
            for name in vars(torch.nn.modules.module)
            if name.startswith("_global_") and name.endswith("hooks")
        ],
        "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path],
        "collector": [_origin(callback) for callback in gc.callbacks],
    }


def _origin(value: object) -> str:
    code = getattr(value, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else type(value).__module__
