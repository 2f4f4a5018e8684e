"""Where the program has filled the stack nothing may be called: hooks give way, and tell of it when there is room."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from gobrrr.capture.hooks.hooks import Hooks
from gobrrr.capture.hooks.lookup import Lookup


def full(*_: Any) -> None:
    raise RecursionError("no room")


def test_a_look_up_gives_way() -> None:
    class Owner:
        method = Lookup(lambda self: 7, full, full)

    assert Owner().method() == 7


def test_a_hook_tells_once_there_is_room() -> None:
    recorder: Any = SimpleNamespace(thread=threading.get_ident(), note=full)
    told: list[BaseException] = []
    hooks = Hooks(recorder, told.append)
    hooks._patches.append(lambda: None)
    hook = hooks.guarded(full)
    hook()
    assert not told
    hook()
    assert [type(error) for error in told] == [RecursionError]


def test_what_is_no_full_stack_is_told_at_once() -> None:
    recorder: Any = SimpleNamespace(thread=threading.get_ident(), note=full)
    told: list[BaseException] = []
    hooks = Hooks(recorder, told.append)
    hooks._patches.append(lambda: None)
    hooks.guarded(lambda: [][1])()
    assert [type(error) for error in told] == [IndexError]
