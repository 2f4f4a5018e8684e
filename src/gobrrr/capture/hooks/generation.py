"""Tells when transformers' generate() begins, and when each of its tokens is there.

Seen by look-ups of its methods, without a frame of ours: of generate() itself, and of the question that every way of
decoding asks before each further token.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from gobrrr.capture.hooks.awaited import Awaited
from gobrrr.capture.hooks.lookup import Lookup, Patches, plain

LIBRARY = "transformers.generation"
ASSISTING = f"{LIBRARY}.candidate_generator"
MODULE = f"{LIBRARY}.utils"
BEGINS, GOES_ON = "generate", "_has_unfinished_sequences"


def mixin() -> Any:
    """The class that has generate(); None while the program has not imported it, or where it is another one."""
    found = getattr(sys.modules.get(MODULE), "GenerationMixin", None)
    return found if found is not None and BEGINS in vars(found) else None


def original() -> Any:
    """generate() itself, behind look-ups of ours; None as of mixin()."""
    owner = mixin()
    return plain(vars(owner)[BEGINS]) if owner is not None else None


def awaited(then: Callable[[], object], patches: Patches) -> None:
    """Call `then` once the program has imported the library, or now."""
    Awaited(MODULE, then, patches)


def is_nested(frame: FrameType | None) -> bool:
    """Whether the library itself calls generate(), of an assistant say."""
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(LIBRARY)


def is_aside(module: Any) -> bool:
    """Whether a call of it is not the program's: it observes weights for torch.ao, or reads what prompts begin with, by
    which gobrrr.data.generated prepares the next generate()."""
    reads = getattr(sys.modules.get("gobrrr.data.prompts"), "reading_ahead", 0)
    return reads == get_ident() or type(module).__module__ == "torch.ao.quantization.observer"


def is_guess() -> bool:
    """Whether the library's own code for assistants is on the stack."""
    frames = (frame for frame, _ in traceback.walk_stack(sys._getframe()))
    return any(str(frame.f_globals.get("__name__")).startswith(ASSISTING) for frame in frames)


def watch_generation(
    begins: Callable[[Any], Any], goes_on: Callable[[Any, Any], None], patches: Patches,
    failed: Callable[[BaseException], object] | None = None,
) -> Callable[[], int | None]:  # fmt: skip
    """`begins(model)` where the program calls generate(); what it returns is called in its place. `goes_on(ids,
    unfinished)` before the first token and behind each: rows x length of all so far, and which rows are not over (None
    where that is not told). Returns a function that gives the length of the last call's sequences before its first new
    token, None where none was made."""
    current: list[int] = []
    length: int | None = None

    def called(model: Any) -> Any:
        nonlocal length
        if is_nested(_caller()):
            return None
        current[:] = [id(model)]
        length = None
        return begins(model)

    def asked(model: Any) -> None:
        nonlocal length
        if current == [id(model)]:
            ids, unfinished = _locals(_caller())
            if len(getattr(ids, "shape", ())) == 2:
                length = ids.shape[1] if length is None else length
                goes_on(ids, unfinished)

    owner = mixin()
    for name, seen in ((BEGINS, called), (GOES_ON, asked)):
        if owner is not None and name in vars(owner):
            patches.replace(owner, name, Lookup(vars(owner)[name], seen, failed))
    return lambda: length


def _caller() -> FrameType:
    """Return the frame that looks a method up, behind however many look-ups of ours."""
    frame: Any = sys._getframe(2)
    while frame.f_globals.get("__name__") == Lookup.__module__:
        frame = frame.f_back
    found: FrameType = frame
    return found


def _locals(frame: FrameType) -> tuple[Any, Any]:
    """Return the sequences of a loop of the library's, and which are not over."""
    found = frame.f_locals
    told = found.get("input_ids"), found.get("unfinished_sequences")
    if type(found) is dict:  # a copy, which would hold the loop's tensors (logits) beyond their time
        found.clear()
    return told
