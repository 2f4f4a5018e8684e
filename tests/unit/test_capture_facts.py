"""Facts of live objects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.capture import facts  # noqa: E402
from gobrrr.capture.recorder import Registry  # noqa: E402


def recorder(*modules: Any) -> Any:
    registry = Registry()
    for module in modules:
        registry.number(module)
    return SimpleNamespace(modules=registry)


def test_parameters_of_a_part_are_those_of_the_whole() -> None:
    encoder = torch.nn.Linear(10, 10, bias=False)
    whole = torch.nn.Sequential(encoder, torch.nn.Linear(10, 1, bias=False))
    other = torch.nn.Linear(3, 1, bias=False)
    first, second, third = facts.modules(recorder(whole, encoder, other))
    assert (first["param_bytes"], first["shared_param_bytes"]) == (440, 0)
    assert (second["param_bytes"], second["shared_param_bytes"]) == (400, 400)
    assert (third["param_bytes"], third["shared_param_bytes"]) == (12, 0)
    first, second = facts.modules(recorder(encoder, whole))
    assert (first["shared_param_bytes"], second["shared_param_bytes"]) == (0, 400)
