"""How does gobrrr work inside a program that must not notice: by torch's modes and compiler, or in its variables?"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

UNFINISHED = "_gobrrr_unfinished"
"""Attribute of a layer's output in which a remedy has what the next layer computes: who is it for. The guard does not
take it for the output."""
_SHARED_LOCALS = sys.version_info < (3, 13)
"""Until PEP 667, all who ask for a function's variables get one and the same dict, and asking rewrites it."""
_TRACING_ASKS = sys.version_info < (3, 11)
"""Before a tracer is called, the interpreter asks for them itself."""


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Work on tensors without the program's modes, subclasses and transforms taking part, and in no profiler's list of
    ops."""
    import torch

    noted = getattr(torch._C._autograd, "_enable_record_function", lambda _: None)  # nobody else in torch calls it
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), _untransformed():
        noted(False)
        try:
            yield
        finally:
            noted(True)


@contextlib.contextmanager
def _untransformed() -> Iterator[None]:
    """Lay aside the transforms of torch.func that this thread is in: none interprets an op of ours. They and its
    dispatch keys come back as they were."""
    if not is_functional():
        yield
        return
    import torch
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(*keys), temporarily_clear_interpreter_stack():
        yield


def is_tracing() -> bool:
    """Whether torch.jit.trace is writing down every op of this thread, ours too."""
    import torch

    return torch._C._get_tracing_state() is not None


def in_backward() -> bool:
    """A backward pass runs on this thread."""
    import torch

    return bool(torch._C._current_graph_task_id() >= 0)


def is_transformed() -> bool:
    """Whether every op of this thread is somebody's to interpret: torch.jit.trace, or a transform of torch.func."""
    return is_tracing() or is_functional()


def is_functional() -> bool:
    """Whether this thread is inside a transform of torch.func, whose tensors stand for others."""
    import torch

    return torch._C._functorch.peek_interpreter_stack() is not None


def is_traced() -> bool:
    """Whether the program traces or profiles this thread by the interpreter: a debugger, coverage, cProfile."""
    tracer, tools = sys.gettrace(), getattr(sys, "monitoring", None)  # 3.12
    theirs = tracer is not None and not type(getattr(tracer, "__self__", None)).__module__.startswith("gobrrr.")
    return theirs or sys.getprofile() is not None or (tools is not None and any(map(tools.get_tool, range(6))))


def is_profiled() -> bool:
    """Whether the program traces or profiles, torch's profiler included: what we do closer would stand in its list."""
    import torch

    return is_traced() or torch._C._autograd._profiler_enabled()


def sees_every_op() -> bool:
    """Whether the program has a dispatch mode on."""
    import torch

    return torch._C._len_torch_dispatch_stack() > 0


def _holds_locals(code: CodeType) -> bool:
    """Whether a function may hold the dict of its variables, which a look from outside would rewrite."""
    return "locals" in code.co_names or "vars" in code.co_names


def may_be_traced(code: CodeType) -> bool:
    """Whether tracing a function's lines leaves its variables as they are."""
    return not (_TRACING_ASKS and _holds_locals(code))


def variables(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables that leaves nothing behind in it; empty where looking would change the program."""
    code = frame.f_code
    if _SHARED_LOCALS and code.co_flags & 1 and _holds_locals(code):
        return {}
    found = dict(frame.f_locals)
    forget(frame)
    return found


def forget(frame: FrameType) -> None:
    """Drop a function's snapshot of its variables: it would keep tensors alive that the program has let go.

    The interpreter remembers that there is one, and fills it again at the next traced line. Writing the empty one back,
    without clearing what it lacks, makes it forget. Never call this inside a trace function: that clears.
    """
    code = frame.f_code
    if _SHARED_LOCALS and code.co_flags & 1 and not _holds_locals(code):
        import ctypes

        frame.f_locals.clear()
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), 0)


def is_the_programs(error: BaseException) -> bool:
    """Whether an exception that came up in our code is the program's: an interrupt, or raised by its signal handler."""
    if not isinstance(error, Exception):
        return True
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


Hook = TypeVar("Hook", bound=Callable[..., Any])


def hide_own_code(*packages: str) -> None:
    """Mark all code of gobrrr.capture, and of further packages, as not to be compiled: dynamo would trace our hooks,
    and warn of them."""
    skip = _skip()
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith(("gobrrr.capture", "gobrrr.system", *packages)):
            for code in _codes(vars(module), name):
                skip(code)


def called_from_compiled(hook: Hook) -> Hook:
    """A hook that compiled code (an optimizer's step) calls and does not trace: it would warn of a builtin in it."""
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    return hook


def _skip() -> Callable[[CodeType], None] | None:
    """torch's own way to leave a code object alone, without importing torch._dynamo (a second of time)."""
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "skip_code"):  # until 2.6
        skip: Callable[[CodeType], None] = eval_frame.skip_code
        return skip
    if not hasattr(eval_frame, "_FrameExecStrategy"):
        return None
    action = eval_frame._FrameAction.SKIP
    return lambda code: eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(action, action))


def _codes(names: dict[str, object], module: str) -> Iterator[CodeType]:
    for value in list(names.values()):
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield from _nested(value.__code__)
        elif isinstance(value, type) and value.__module__ == module:
            yield from _codes(dict(vars(value)), module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
