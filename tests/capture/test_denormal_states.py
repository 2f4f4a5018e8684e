"""What optimizers keep is looked at for denormal values, as parameters and buffers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.capture.session import window_plan  # noqa: E402
from gobrrr.recording.run_folder.noted_facts import facts_of  # noqa: E402
from gobrrr.recording.run_folder.run import load_run  # noqa: E402
from tests.transparency.training import watched  # noqa: E402


@pytest.mark.parametrize(("kept", "told"), [(1e-40, {"optimizer's momentum_buffer"}), (1.0, set())])
def test_a_momentum_that_decayed_is_seen(
    kept: float, told: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_plan, "is_steady", lambda walls, min_time=0: len(walls) >= 4)
    torch.set_flush_denormal(False)  # another test of this process may have left it on
    with watched(tmp_path):
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=1.0)
        for _ in range(40):
            model(torch.ones(4, 8)).mean().mul(0).backward()
            optimizer.step()
            optimizer.zero_grad()
            for state in optimizer.state.values():
                state["momentum_buffer"].fill_(kept)
    (recording,) = load_run(tmp_path)
    found: Any = facts_of(recording, []).denormals
    assert {each.name for each in found} == told
