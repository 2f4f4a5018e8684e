"""Facts from the program's objects and torch's switches in the steady state, in the shape of recording.facts."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from gobrrr.capture.facts.tensors import is_plain
from gobrrr.capture.hooks import module_parts
from gobrrr.capture.hooks.transform_guard import is_tracing, unseen
from gobrrr.capture.session.records import noted
from gobrrr.capture.source import statements
from gobrrr.capture.source.user_code import user_line
from gobrrr.capture.steps import device_memory, vitals
from gobrrr.capture.steps.ranks import buckets
from gobrrr.machine.probe.matmul_precision import matmul_precision
from gobrrr.machine.probe.system_probe import memory_limit
from gobrrr.system import processes

if TYPE_CHECKING:
    from gobrrr.capture.session.recorder import Recorder

FEW = 4
"""Parameters that are looked at, of the first and of the last; proposed: a copy that moves moves them all; one that was
missed would settle it."""
_DEBUG_ENV = (
    "TORCH_SHOW_CPP_STACKTRACES", "TORCH_LOGS", "TORCH_COMPILE_DEBUG", "TORCH_DISTRIBUTED_DEBUG",
    "CUDA_LAUNCH_BLOCKING", "TORCH_CPP_LOG_LEVEL", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_JIT",
    "TORCHDYNAMO_DISABLE", "MALLOC_CHECK_", "MALLOC_PERTURB_", "PYTHONMALLOC", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE",
    "DNNL_VERBOSE", "ONEDNN_VERBOSE", "MKL_VERBOSE",
)  # fmt: skip

_DETERMINISTIC = ("use_deterministic_algorithms", "set_deterministic_debug_mode")


def settings(files: list[str], errors: dict[str, str]) -> dict[str, Any]:
    """recording.facts.Settings as a dict. `files` are the user's source files, searched for who set what. What torch
    refuses to tell is left out, with its reason in `errors`."""
    import torch

    asked: dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "cores": vitals.cores,
        "anomaly": torch.is_anomaly_enabled,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "matmul_precision": lambda: matmul_precision(torch),
        "flush_denormal": flushes_denormals,
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "autocast": autocast,
        "profiler_on": torch._C._autograd._profiler_enabled,
        "debug_env": lambda: tuple(name for name in _DEBUG_ENV if os.environ.get(name) not in (None, "", "0")),
        "mkldnn": lambda: bool(torch._C._has_mkldnn and torch.backends.mkldnn.enabled),
        "anomaly_span": lambda: statements.call_line(files, ("set_detect_anomaly", "detect_anomaly")),
        "deterministic_span": lambda: statements.call_line(files, _DETERMINISTIC),
        "threads_span": lambda: statements.call_line(files, ("set_num_threads",)),
    }
    found: dict[str, Any] = {}
    for name, ask in asked.items():
        with noted(errors, f"settings.{name}"):
            found[name] = ask()
    with noted(errors, "settings.trainer"):
        found |= trainer_facts(sys._getframe(), files)
    return found


def flushes_denormals() -> bool:
    import torch

    with torch.no_grad():
        return bool((torch.full((1,), 1.2e-38) * 0.5).eq(0).item())


def autocast() -> str | None:
    import torch

    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return None


def modules(recorder: Recorder) -> list[dict[str, Any]]:
    """Facts of every top-level module that is still alive."""
    counted: set[int] = set()
    return [_module(number, module, counted) for number, module in recorder.modules.alive()]


def _module(number: int, module: Any, counted: set[int]) -> dict[str, Any]:
    """`counted`: ids of the parameters of the modules before it; its own are added."""
    params = [p for _, p in module_parts.parameters(module)]
    shared = sum(_num_bytes(p) for p in params if id(p) in counted)
    counted.update(map(id, params))
    return {
        "id": number,
        "kind": type(module if (inner := module_parts.original(module)) is None else inner).__name__,
        "num_params": sum(p.numel() for p in params),
        "param_bytes": sum(_num_bytes(p) for p in params),
        "shared_param_bytes": shared,
        "trainable_params": sum(p.numel() for p in params if p.requires_grad),
        "frozen": _as_they_are([p for p in params if not p.requires_grad]),
        "training": module_parts.is_training(module),
        "compiled": module_parts.is_compiled(module),
        "hooks": module_parts.num_hooks(module),
    }


def _as_they_are(params: list[Any]) -> list[list[float]]:
    """Return of some parameters their version, where they lie and, on the host, a number of each: two looks tell
    whether they move. An average that follows a student may be written through .data, which counts no version."""
    if not params or is_tracing():
        return []
    try:
        with unseen():
            return [_state(p) for p in (*params[:FEW], *params[-FEW:]) if is_plain(p)]
    except Exception:  # tensors of a kind that says none of it
        return []


def _state(param: Any) -> list[float]:
    there = param.device.type == "cpu" and param.numel() > 0 and param.is_floating_point()
    number = float(param.detach().reshape(-1)[param.numel() // 2]) if there else 0.0
    return [0 if param.is_inference() else param._version, param.data_ptr(), number if number == number else 0.0]


def optimizers(recorder: Recorder) -> list[dict[str, Any]]:
    """Facts of every optimizer that has stepped and is still alive."""
    return [_optimizer(number, optimizer, recorder) for number, optimizer in recorder.optimizers.alive()]


def _optimizer(number: int, optimizer: Any, recorder: Recorder) -> dict[str, Any]:
    params = _updated(optimizer)
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    states = [value for state in list(optimizer.state.values()) if isinstance(state, dict) for value in state.values()]
    return {
        "id": number,
        "kind": type(optimizer).__name__,
        "fused": group.get("fused"),
        "foreach": group.get("foreach"),
        "num_tensors": len(params),
        "num_elements": sum(p.numel() for p in params),
        "param_bytes": sum(_num_bytes(p) for p in params),
        "grad_bytes": sum(_num_bytes(grad) for p in params if (grad := module_parts.gradient(p)) is not None),
        "state_bytes": sum(_num_bytes(value) for value in states),
        "supports_fused": "fused" in group and not group.get("differentiable", False),
        "span": recorder.update_spans.get(number),
        "shapes": [(shape, count) for shape, count in Counter(tuple(p.shape) for p in params).items()],
        "buckets": buckets([_num_bytes(p) for p in reversed(params)]),
        "options": {name: value for name, value in group.items() if _is_option(name, value)},
    }


def _updated(optimizer: Any) -> list[Any]:
    """Parameters that its step passes over: with a gradient or a state, for the frozen ones are skipped (of a LoRA's
    optimizer nearly all). An update that keeps no state, looked at without gradients: those that may get one."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    touched = [p for p in params if module_parts.gradient(p) is not None or optimizer.state.get(p)]
    return touched or [p for p in params if p.requires_grad]


def _is_option(name: Any, value: Any) -> bool:
    """A plain number or switch, or a pair of numbers; tensors (a capturable lr) are none."""
    numbers = value if type(value) is tuple else (value,)
    return (
        type(name) is str and name not in ("fused", "foreach") and all(type(n) in (bool, int, float) for n in numbers)
    )


def _num_bytes(tensor: Any) -> int:
    try:
        return int(tensor.numel() * tensor.element_size())
    except (AttributeError, RuntimeError):  # a number, a sparse or a lazy tensor
        return 0


def orphans(recorder: Recorder, reached: set[int] | None = None) -> dict[str, Any] | None:
    """Parameters that get a gradient and are in no optimizer that was seen. One that training before this loop has
    left is none: `reached` are the tensors (by id) to which the backward passes lead; null where they were not seen."""
    updated = {id(p) for _, o in recorder.optimizers.alive() for group in o.param_groups for p in group["params"]}
    found: dict[int, tuple[str, Any]] = {}
    for _, module in recorder.modules.alive():
        for name, param in module_parts.parameters(module):
            gets = param.requires_grad and (reached is None or id(param) in reached)
            if gets and id(param) not in updated and module_parts.gradient(param) is not None:
                found.setdefault(id(param), (name, param))
    if not found or not updated:
        return None
    params = [param for _, param in found.values()]
    return {
        "num_tensors": len(params),
        "num_elements": sum(p.numel() for p in params),
        "num_bytes": sum(_num_bytes(p) for p in params),
        "names": [name for name, _ in found.values()][:8],
    }


def loaders(recorder: Recorder) -> list[dict[str, Any]]:
    """Facts of every loader iterator; those of one loader share their `key`."""
    counted = (("num_looked", "num_drew"), recorder.draws), (("num_compared", "num_equal"), recorder.copies)
    found = []
    for number, facts in recorder.loader_facts.items():
        told = {"id": number, **facts}
        for names, looking in counted:
            if not looking.error:
                told |= zip(names, looking.looks.get(tuple(facts["key"]), ()), strict=False)
        found.append(told)
    return found


def draws(recorder: Recorder) -> int:
    """Batches that were looked at for random draws. Raises what kept it from it."""
    if recorder.draws.error:
        raise RuntimeError(recorder.draws.error)
    return sum(looked for looked, _ in recorder.draws.looks.values())


def lengths(recorder: Recorder) -> list[dict[str, Any]]:
    """Return how long the sequences were in the batches that were looked at, per loader. Raise what prevented
    looking."""
    if recorder.lengths.error:
        raise RuntimeError(recorder.lengths.error)
    first: dict[tuple[Any, ...], int] = {}
    for number, known in recorder.loader_facts.items():
        first.setdefault(tuple(known.get("key", ())), number)
    tables = recorder.lengths.tables.items()
    return [{"loader": first[key], **table.facts()} for key, table in tables if table.batches and key in first]


def graphs() -> tuple[int, int] | None:
    """Graphs that torch.compile has made so far, and the distinct reasons for which it broke them; None where it was
    not used."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None or not utils.counters.get("stats"):
        return None
    return int(utils.counters["stats"].get("unique_graphs", 0)), len(utils.counters.get("graph_break", {}))


def compiled() -> dict[str, Any]:
    """torch.compile's own counters, or {} where dynamo was never loaded."""
    made = graphs()
    if made is None:
        return {}
    utils = sys.modules["torch._dynamo.utils"]
    counted: dict[str, dict[Any, int]] = {name: dict(counts) for name, counts in utils.counters.items()}
    return {
        "used": True,
        "num_graphs": made[0],
        "frames": int(counted.get("frames", {}).get("total", 0)),
        "graph_breaks": made[1],
        "break_reasons": [_line(reason) for reason in list(counted.get("graph_break", {}))[:8]],
        "break_spans": _break_spans(utils),
        "compile_ns": int(1e9 * sum(sum(t) for name, t in utils.compilation_time_metrics.items() if name in _COMPILE)),
        "reasons": [_line(r) for reasons in list(utils.guard_failures.values())[:4] for r in reasons[-2:]],
        "limit_hit": any("limit" in str(reason) for reason in counted.get("unimplemented", {})),
    }


_COMPILE = ("_compile.compile_inner", "entire_frame_compile")


def _line(reason: Any) -> str:
    return str(reason).strip().split("\n")[0][:200]


def _break_spans(utils: Any) -> list[dict[str, Any]]:
    stacks = [getattr(reason, "user_stack", None) for reason in list(getattr(utils, "graph_break_reasons", []))[:8]]
    frames = [stack[-1] for stack in stacks if stack]
    return [{"file": each.filename, "line": each.lineno or 0, "function": each.name} for each in frames]


_STATUS = {"rss_bytes": "VmRSS", "peak_rss_bytes": "VmHWM", "swap_used": "VmSwap", "mapped": "RssFile"}


def memory(runtime: dict[str, Any] | None = None) -> dict[str, Any]:
    """Resident, peak and limit of this process's memory; swap in use by it; the same of the device that it uses.

    `runtime`: this as it was when torch had been imported. Pages of files that were mapped since are left out: they go
    whenever others need the room. A peak is known with all of them; those that are there now are taken from it.
    """
    found: dict[str, Any] = {}
    try:
        told = processes.sizes(*_STATUS.values())
        found |= {name: told[key] for name, key in _STATUS.items() if key in told}
        found["memory_limit"] = memory_limit()
    except (OSError, ValueError, IndexError):
        pass
    if runtime is not None:
        since = max(0, found.get("mapped", 0) - runtime.get("mapped", 0))
        found |= {name: found[name] - since for name in ("rss_bytes", "peak_rss_bytes") if name in found}
        found["runtime_bytes"] = runtime.get("rss_bytes")
    return {**found, **device_memory.most()}


TRAINERS = {
    "transformers.trainer": "transformers",
    "lightning.pytorch.trainer.trainer": "lightning",
    "pytorch_lightning.trainer.trainer": "lightning",
    "fastai.learner": "fastai",
    "accelerate.optimizer": "accelerate",
}
"""The module whose code is on the stack, and the name by which rules.trainers knows whose arguments to tell of."""


MAKERS = {
    "lightning": ("Trainer",),
    "accelerate": ("Accelerator",),
    "fastai": ("Learner", "tabular_learner", "vision_learner", "text_classifier_learner", "language_model_learner"),
}
"""Names that a user calls to give it its arguments. Trainers of transformers have many subclasses: the object's own
says."""


def trainer_facts(frame: FrameType | None, files: list[str]) -> dict[str, Any]:
    """recording.facts.Settings.trainer, and where the user calls it and gives it its arguments. `files` are the user's
    source files."""
    trainer, outermost = _running(frame)
    makers = _makers(trainer, outermost) if trainer else ()
    return {
        "trainer": trainer,
        "trainer_span": user_line(outermost.f_back) if outermost is not None else None,
        "arguments_span": statements.call_line(files, makers),
        "argument_lines": statements.argument_lines(files, makers),
        "padding_span": statements.argument_line(files, "padding", "max_length"),
    }


def _running(frame: FrameType | None) -> tuple[str, FrameType | None]:
    """The outermost of them, and its outermost frame: a transformers Trainer uses accelerate. Empty where the program
    trains by itself."""
    found: tuple[str, FrameType | None] = ("", None)
    while frame is not None:
        known = TRAINERS.get(frame.f_globals.get("__name__", ""))
        found = (known, frame) if known else found
        frame = frame.f_back
    return found


def _makers(trainer: str, frame: FrameType | None) -> tuple[str, ...]:
    if trainer != "transformers" or frame is None:
        return MAKERS.get(trainer, ())
    held = getattr(frame.f_locals.get("self"), "__dict__", {}).get("args")
    return (type(held).__name__,)
