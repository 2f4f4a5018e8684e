"""A module that torch.fx has made of another is called like any other."""

from __future__ import annotations

import pytest

from gobrrr.capture.hooks.lookup import Lookup, ModuleCall

torch = pytest.importorskip("torch")


def test_calls_are_seen_behind_a_tracing_until_nobody_wants_them() -> None:
    seen: list[str] = []

    def watched(name: str) -> ModuleCall:
        return ModuleCall(lambda method: Lookup(method, lambda _: seen.append(name)))

    calls = [watched("a"), watched("b")]
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    seen.clear()
    traced(torch.ones(2))
    assert set(seen) == {"a", "b"}
    for each in reversed(calls):
        each.remove()
    torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    seen.clear()
    traced(torch.ones(2))
    assert seen == []
    assert not hasattr(torch.nn.Module.__dict__["__call__"], "seen")
    assert torch.fx._symbolic_trace._Patcher.revert_all_patches.__module__ == "torch.fx._symbolic_trace"
