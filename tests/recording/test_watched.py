"""What a journal has told so far is what it tells when it is read whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.recording.live.live_state import LoopSoFar, Watched
from gobrrr.recording.model import event_kinds
from gobrrr.recording.model.steps import Step
from gobrrr.recording.run_folder.run import load_run
from tests.recording.test_journal import frame
from tests.report.test_top import start, written


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 4]), st.booleans()), min_size=2, max_size=40),
    st.sampled_from(["exit", "left early", "stop-after", None]),
)
def test_the_loop_that_is_told_is_that_of_the_report(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, bool]], reason: str | None
) -> None:
    times = np.cumsum([gap for gap, _, _ in rows])
    events = [(t, event_kinds.BOUNDARY, int(other), kind) for t, (_, kind, other) in zip(times, rows, strict=True)]
    end = [] if reason is None else [{"type": "end", "reason": reason}]
    run = written(tmp_path_factory.mktemp("loops") / "run", start(), np.array(events), *end)
    watched, (told,) = Watched(run / "rank0.journal"), load_run(run)
    watched.look(1 << 20)
    if told.main is None:
        assert watched.main is None
        return
    assert watched.main is not None
    assert (watched.main.kind, watched.main.num) == (told.main.kind, len(told.main.steps))
    assert (watched.main.total, watched.main.span) == (told.main.total, told.main.span)


def test_a_loader_that_no_machine_has_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "rank0.journal"
    path.write_bytes(frame(b"J", b'{"type":"facts","loaders":[{"num_workers":1e999,"prefetch_factor":2}]}'))
    watched = Watched(path)
    watched.look(1 << 20)
    assert watched.finder.settle == 2
    assert load_run(tmp_path)[0].loops == ()


def test_steps_of_a_rest_count_and_tell_no_parts() -> None:
    loop = LoopSoFar()
    plain, rest = Step(0, 100, 0), Step(100, 300, 0, rests=True)
    settling, looked_at = Step(300, 600, 0, settling=True), Step(600, 1000, event_kinds.PROFILE)
    for step in (plain, rest, settling, looked_at):
        loop.add(step)
    assert (loop.num, loop.trend.num) == (4, 2)
    assert list(loop.late) == [100, 200], "what a closer look made longer is no time of a step"
    assert list(loop.seen) == [plain], "hooks that rest mark nothing"
