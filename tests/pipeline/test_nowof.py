"""What is known of a process by its journal and by what is around it: whether it may still run, whose the cores are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.pipeline.watching import ALIVE_S, LAST_S, Surroundings, now_of
from gobrrr.recording.live import now
from gobrrr.recording.live.live_state import Watched
from gobrrr.recording.model import event_kinds
from tests.report.test_top import NOW_S, start, written

BOOT_NS, SECOND = 10**18, 10**9


def watched(folder: Path, *frames: Any) -> Watched:
    found = Watched(written(folder / "run", start(clock=[BOOT_NS + 5, 5]), *frames) / "rank0.journal")
    found.look(1 << 20)
    return found


@pytest.mark.parametrize(("boot_ns", "tells", "patience_s"), [
    (BOOT_NS, True, LAST_S), (2 * BOOT_NS, True, ALIVE_S), (BOOT_NS, False, ALIVE_S),
])  # fmt: skip
def test_one_of_another_machine_may_be_silent_for_longer(
    boot_ns: int, tells: bool, patience_s: float, tmp_path: Path
) -> None:
    def state(silent_s: float, met: bool = False) -> str:
        return now_of(one, None, Surroundings(NOW_S + silent_s, boot_ns, 4, tells, met=met)).state

    one = watched(tmp_path)
    assert LAST_S < ALIVE_S
    assert (state(patience_s - 1), state(patience_s + 1)) == (now.ELSEWHERE, now.CUT)
    assert state(0, met=True) == now.CUT, "it was seen to run here, and is gone"


@pytest.mark.parametrize(("alone", "workers", "doubts"), [(True, 0, 1), (False, 0, 0), (True, 2, 0)])
def test_others_are_strangers_only_where_none_of_them_is_its_own(
    alone: bool, workers: int, doubts: int, tmp_path: Path
) -> None:
    cores = [(n * SECOND, kind, 0, n * value * SECOND) for n in range(1, 12)
             for kind, value in ((event_kinds.CPU, 1), (event_kinds.BUSY, 3))]  # fmt: skip
    facts = {"type": "facts", "loaders": [{"num_workers": workers}], "settings": {"cores": 4}}
    told = now_of(watched(tmp_path, facts, np.array(cores)), None, Surroundings(NOW_S, BOOT_NS, 64, alone=alone))
    assert (told.busy_cores, told.other_cores) == (1.0, 2.0)
    assert len(told.doubts) == doubts
