"""Which allocation did the program die of: line, layer, phase, and what held memory then; read when it is over.

The interpreter keeps the error that ended a program, with its frames, until after the last callback: nothing has to
stand in the program's way for it. An error that the program caught itself is not there any more.
"""

from __future__ import annotations

import json
import os
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gobrrr.capture.facts.alive import MAX_ITEMS, Alive, Group, made_by_steps, module_of
from gobrrr.capture.facts.tensors import is_plain
from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.transform_guard import unseen
from gobrrr.capture.source.user_code import UserFiles
from gobrrr.capture.steps import device_memory
from gobrrr.machine.probe import system_probe
from gobrrr.system import files, processes
from gobrrr.words import phase_of

SAYS_SO = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|not enough memory|unable to allocate|ALLOC_FAILED"
    r"|std::bad_alloc|unable to mmap|killed by signal: (Killed|Bus error)|insufficient shared memory"
    r"|could not create a memory object|Native API failed.*OUT_OF_(DEVICE|HOST|RESOURCES)",
    re.IGNORECASE,
)
"""Words of torch's allocators, its libraries, numpy and the loader."""
MAX_TEXT = 4_000
"""Characters of the message that are kept."""
MAX_LIBRARIES = 24
"""Functions of libraries that are kept, the innermost."""
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
            "MALLOC_ARENA_MAX", "CUDA_VISIBLE_DEVICES")  # fmt: skip


def note(
    folder: Path, steps: int, grown: Callable[[types.FrameType], list[dict[str, Any]]], runtime: int | None = None
) -> None:  # fmt: skip
    """Write what the program died of into `folder`, where memory was it; `grown` are containers that grew, `runtime`
    the bytes that the interpreter and torch held before."""
    error = ended_by()
    if error is None:
        return
    found = {"type": type(error).__name__, "text": str(error)[:MAX_TEXT], "steps": steps, **_where(error)}
    path = folder / f"out-of-memory-{os.getpid()}.json"
    _write(path, found)  # the rest takes memory, of which little may be left
    frames = list(_frames(error))
    user = UserFiles()
    with suppress(Exception):
        found["grown"] = grown(frames[0]) if frames else []
    found |= _alive(frames, user)
    with suppress(Exception):
        found |= _sizes(found["text"])
        found["process"]["runtime"] = runtime
    _write(path, found)


def _write(path: Path, found: dict[str, Any]) -> None:
    """Write whole or not at all; what is no text of UTF-8 in it is replaced."""
    files.write(path, json.dumps(found, ensure_ascii=False, default=str).encode("utf-8", "replace"))


def ended_by() -> BaseException | None:
    """Return the error that ends the program, or one behind it, if it is one of memory."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        if _is_of_memory(error):
            return error
        error = error.__cause__  # not what was handled while it came up: that may have been long ago
    return None


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == 12  # ENOMEM
    if isinstance(error, ValueError):  # numpy's; a program's own may speak of any memory
        return "allocate" in str(error).lower()
    return isinstance(error, RuntimeError) and bool(SAYS_SO.search(str(error)))


def _frames(error: BaseException) -> Iterator[types.FrameType]:
    """The frames of the failed lines, the innermost first."""
    trace, found = error.__traceback__, []
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(found)


def _where(error: BaseException) -> dict[str, Any]:
    """Line, callers, layer, phase and inputs of the failed call."""
    user, lines, trace = UserFiles(), [], error.__traceback__
    functions: list[tuple[str, str]] = []
    modules: list[Any] = []
    while trace is not None:
        frame, code = trace.tb_frame, trace.tb_frame.f_code
        functions.append((code.co_filename.replace(os.sep, "/"), code.co_name))
        if user.is_user(code.co_filename):
            lines.append({"file": code.co_filename, "line": trace.tb_lineno, "function": code.co_name})
        if (module := module_of(frame)) is not None and (not modules or modules[-1] is not module):
            modules.append(module)
        trace = trace.tb_next
    root = modules[0] if modules else None
    given = _given(error, root) if root is not None else {}
    names = {id(module): name for name, module in module_parts.modules(root)}
    layer = next((module for module in reversed(modules) if id(module) in names), None)
    phase = phase_of(functions)
    order, name = list(names.values()), names.get(id(layer), "")
    below = sum(each.startswith(f"{name}.") for each in order) if name else 0
    return {
        "lines": lines[::-1][:8],
        "function": functions[-1][1] if functions else "",
        "phase": "evaluation"
        if phase == "forward" and root is not None and not module_parts.is_training(root)
        else phase,
        "model": type(root).__name__ if root is not None else "",
        "layer": name,
        "layer_kind": type(layer).__name__ if layer is not None else "",
        "layers_before": order.index(name) + below // 2 if name else None,
        "num_layers": len(order) or None,
        "training": module_parts.is_training(root) if root is not None else None,
        "batch_norm": any("BatchNorm" in type(module).__name__ for _, module in module_parts.modules(root)),
        "inputs": _inputs(error, modules),
        "carried": _carried(given, root),
        "of_model": any(_is_data(value) for value in given.values()),
        "libraries": _libraries(functions),
        "learns": _learns(error, user),
    }


def _learns(error: BaseException, user: UserFiles) -> bool:
    """Say whether the function that called the model runs a backward pass too."""
    callers = (f for f in _frames(error) if user.is_user(f.f_code.co_filename) and module_of(f) is None)
    caller = next(callers, None)
    return caller is not None and "backward" in caller.f_code.co_names


def _libraries(functions: list[tuple[str, str]]) -> list[str]:
    """'package/module.function' of the installed packages' functions on the way, torch's own left out."""
    found = []
    for file, function in functions:
        _, inside, path = file.rpartition("-packages/")
        if inside and not path.startswith("torch/"):
            found.append(f"{path.removesuffix('.py')}.{function}")
    return list(dict.fromkeys(found))[-MAX_LIBRARIES:]


def _given(error: BaseException, module: Any) -> dict[str, Any]:
    """Return the arguments that a module was called with, by name: its forward may have given the names to others."""
    for frame in _frames(error):
        if frame.f_code.co_name == "_call_impl" and frame.f_locals.get("self") is module:
            code = getattr(getattr(type(module), "forward", None), "__code__", None)
            names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
            args, kwargs = frame.f_locals.get("args") or (), frame.f_locals.get("kwargs") or {}
            return {**{names[at] if at < len(names) else str(at): value for at, value in enumerate(args)}, **kwargs}
    return {}


def _inputs(error: BaseException, modules: list[Any]) -> list[dict[str, Any]]:
    """Tensors that the outermost module was called with; of a failure outside of modules those of the user's lines."""
    user, found = UserFiles(), dict[str, Any]()
    for module in modules:
        found = {name: value for name, value in _given(error, module).items() if _is_data(value)}
        if found:
            break
    frames = [frame for frame in _frames(error) if user.is_user(frame.f_code.co_filename)] if not modules else []
    for frame in frames:
        found |= {name: value for name, value in frame.f_locals.items() if _is_data(value) and name not in found}
    return [
        {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
         "num_bytes": tensor.numel() * tensor.element_size()}
        for name, tensor in list(found.items())[:6]
    ]  # fmt: skip


def _carried(given: dict[str, Any], root: Any) -> str:
    """Return the argument of the outermost module that its own parameters made: a state of the steps before with its
    graph; empty where none is."""
    own = {id(param) for _, param in module_parts.parameters(root)} if root is not None else set()
    for name, value in given.items() if own else ():
        parts: Any = value if type(value) in (tuple, list) else (value,)
        made = [part.grad_fn for part in parts if _is_data(part) and part.grad_fn is not None]
        if made_by_steps(made, own):  # else a loop over a step's own parts made it
            return name
    return ""


def _is_data(value: Any) -> bool:
    import torch

    kind = type(value)  # not isinstance, which asks the object
    return issubclass(kind, torch.Tensor) and not issubclass(kind, torch.nn.Parameter) and is_plain(value)


def _alive(frames: list[types.FrameType], user: UserFiles) -> dict[str, Any]:
    """Bytes by device and role, the largest groups of each."""
    alive = Alive(frames, user.is_user, list(_backward_roots(frames)))
    try:
        with unseen():
            alive.look()
    except Exception as failed:  # what was claimed so far stays
        alive.notes.append(f"not all that holds memory could be read: {type(failed).__name__}")
    return {
        **({"carried": alive.carried} if alive.carried else {}),
        **({"batch_norm": True} if alive.batch_norm else {}),  # in backward no frame leads to the model
        "alive": {device: _told(sizes, alive.counts[device]) for device, sizes in alive.sizes.items()},
        "in_backward": alive.in_backward,
        "optimizers": alive.optimizers,
        "optimizer_options": alive.options,
        "history_size": alive.history if type(alive.history) is int else None,
        "repeated": alive.repeated,
        "repeated_in": alive.repeated_in,
        "summed": alive.summed,
        "masks": alive.masks,
        "gradient_graphs": alive.gradient_graphs,
        "notes": alive.notes,
    }


def _backward_roots(frames: list[types.FrameType]) -> Iterator[Any]:
    """Tensors whose backward pass the failed lines had begun."""
    import torch

    for frame in frames:
        if frame.f_code.co_name == "backward" and "torch" in frame.f_code.co_filename:
            for value in (frame.f_locals.get("self"), frame.f_locals.get("tensors")):
                for each in (*value,) if isinstance(value, (tuple, list)) else (value,):
                    if issubclass(type(each), torch.Tensor):
                        yield each


def _told(sizes: Counter[tuple[str, Group]], counts: Counter[tuple[str, Group]]) -> list[dict[str, Any]]:
    roles: dict[str, Counter[Group]] = {}
    for (role, group), size in sizes.items():
        roles.setdefault(role, Counter())[group] += size
    return [
        {
            "role": role,
            "num_bytes": groups.total(),
            "groups": [
                {**group._asdict(), "num_bytes": size, "count": counts[role, group]}
                for group, size in groups.most_common(MAX_ITEMS)
            ],
        }
        for role, groups in sorted(roles.items(), key=lambda item: -item[1].total())
    ]


def _sizes(text: str) -> dict[str, Any]:
    """Return the bytes that the process and its device have in use, and the limits that there are."""
    found: dict[str, Any] = {"settings": {name: os.environ[name] for name in SETTINGS if name in os.environ}}
    used = processes.sizes("VmRSS", "VmHWM", "VmSize", "VmData", "VmSwap")
    found["process"] = {"resident": used.get("VmRSS"), "peak": used.get("VmHWM"), "virtual": used.get("VmSize"),
                        "data": used.get("VmData"), "swap": used.get("VmSwap")}  # fmt: skip
    found["limits"] = limits()
    with suppress(Exception):  # a device that failed may answer nothing any more
        if (cuda := device_memory.cuda_in_use()) is not None:
            found["device"] = _device(cuda, text)
    return found


def limits() -> dict[str, int | None]:
    """Bytes that this process may have: by its own limits, its group's or the machine's; and what is free now."""
    import resource

    def of(kind: int) -> int | None:
        soft, _ = resource.getrlimit(kind)
        return None if soft == resource.RLIM_INFINITY else soft

    free = system_probe.free_memory()
    return {"address_space": of(resource.RLIMIT_AS), "data": of(resource.RLIMIT_DATA),
            "memory": system_probe.memory_limit(), "free": None if free is None else max(0, int(free))}  # fmt: skip


def _device(cuda: Any, text: str) -> dict[str, Any]:
    """The allocator's own figures of the device that the message names, else of the one that holds most."""
    numbers, named = device_memory.in_use(), re.search(r"GPU (\d{1,3})", text)
    number = int(named[1]) if named else max(numbers, key=lambda each: int(cuda.memory_allocated(each)), default=0)
    stats = cuda.memory_stats(number)
    free, total = cuda.mem_get_info(number)
    blocks = [block["size"] for segment in cuda.memory_snapshot() if segment["device"] == number
              for block in segment["blocks"] if block["state"] == "inactive"]  # fmt: skip
    return {
        "name": str(cuda.get_device_name(number)), "number": number, "total": int(total), "free": int(free),
        "allocated": int(cuda.memory_allocated(number)), "reserved": int(cuda.memory_reserved(number)),
        "peak": int(cuda.max_memory_allocated(number)), "largest_free_block": max(blocks, default=0),
        "times": int(stats.get("num_ooms", 0)), "retries": int(stats.get("num_alloc_retries", 0)),
    }  # fmt: skip
