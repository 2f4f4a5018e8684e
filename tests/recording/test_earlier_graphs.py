"""Backward through graphs of earlier steps: by what torch's own observer writes of steps whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from gobrrr.recording.run_folder.dataflow_file import CARRIED, EARLIER
from gobrrr.recording.run_folder.fates import fates
from gobrrr.recording.trace_files.limits import DEFAULT
from tests.recording.test_repeated_ops import observed


def fated(carry: Callable[[torch.Tensor], torch.Tensor], path: Path, **how: bool) -> dict[float, set[str]]:
    """Ops by their fate, of a step whose loss is against a mean that goes on."""
    net, queue = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.rand(16, 8)
    running = [torch.zeros(8)]

    def step(_: int) -> None:
        h = net(torch.rand(4, 8)).exp()
        running[0] = running[0].sigmoid() * 0.9 + carry(h.mean(0))
        loss = (h - running[0]).square().mean() + (h @ queue.t()).logsumexp(1).mean()
        loss.backward(**how)
        with torch.no_grad():
            queue.copy_(torch.cat([queue[4:], h.detach()]))

    told = fates(observed(step, path), (), DEFAULT)
    return {fate: {name.removeprefix("aten::") for (name, *_), calls in told.items() if fate in calls}
            for fate in (EARLIER, CARRIED)}  # fmt: skip


def test_a_running_mean_that_was_not_detached_takes_backward_through_earlier_steps(tmp_path: Path) -> None:
    told = fated(lambda mean: mean, tmp_path, retain_graph=True)
    assert {"tanh_backward", "mul", "sigmoid_backward"} <= told[EARLIER] and "sigmoid" in told[CARRIED]
    assert "linear" not in told[CARRIED] and "logsumexp" not in told[EARLIER]


@pytest.mark.parametrize("how", [{}, {"retain_graph": True}])
def test_what_is_detached_a_queue_and_weights_are_no_graph(how: dict[str, bool], tmp_path: Path) -> None:
    assert fated(lambda mean: mean.detach(), tmp_path, **how) == {EARLIER: set(), CARRIED: set()}
