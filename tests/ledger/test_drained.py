"""The device is waited for where a window begins and ends, and only where that harms nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gobrrr.capture.windows import profiling
from tests.capture import test_session_windows as windows


def cuda(monkeypatch: pytest.MonkeyPatch, used: bool, captures: bool) -> list[str]:
    """torch.cuda as a program has it; what was asked of the device."""
    asked: list[str] = []
    fake: Any = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: used, is_current_stream_capturing=lambda: captures,
        synchronize=lambda number: asked.append(f"wait for {number}"), device_count=lambda: 2,
        current_device=lambda: 0,
    )  # fmt: skip
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda number: True, raising=False)
    monkeypatch.setattr(torch, "cuda", fake)
    return asked


@pytest.mark.parametrize(
    ("used", "captures", "with_device", "asked"),
    [(False, False, False, []), (True, False, True, ["wait for 0", "wait for 1"]), (True, True, True, [])],
)
def test_a_device_is_waited_for_where_it_is_used_and_no_graph_is_recorded(
    used: bool, captures: bool, with_device: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait while a graph is recorded ends the recording with an error, and the program with it; to wait for a device
    that nobody uses makes a context there."""
    found = cuda(monkeypatch, used, captures)
    assert profiling._drained() is with_device and found == asked


def test_no_window_opens_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for captures in (False, True):
        cuda(monkeypatch, True, captures)
        assert windows.may_open(windows.INFERS, monkeypatch, infers=windows.loop(1 << 40)) is not captures
