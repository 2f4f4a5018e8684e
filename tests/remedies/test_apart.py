"""What is tried in a copy of the process leaves nothing in it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

torch = pytest.importorskip("torch")

from gobrrr.remedies import apart  # noqa: E402


def test_an_answer_comes_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = {"opened": 0}

    def ask() -> list[int | None]:
        state["opened"] += 1
        print("loud", flush=True)
        torch.rand(3)
        (tmp_path / "parent").write_text(str(os.getppid()))
        return [3, None]

    before, fds = torch.get_rng_state(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert apart.apart(ask) == [3, None]
    assert state == {"opened": 0} and capfd.readouterr() == ("", "")
    assert bool((torch.get_rng_state() == before).all()) and len(os.listdir("/proc/self/fd")) == fds  # noqa: PTH208
    assert (tmp_path / "parent").read_text() == str(os.getpid())


def test_a_failure_is_told_by_its_name() -> None:
    with pytest.raises(apart.TriedApart, match="ZeroDivisionError"):
        apart.apart(lambda: 1 // 0)
    with pytest.raises(apart.TriedApart, match="SystemExit"):
        apart.apart(lambda: exit(3))
    with pytest.raises(apart.TriedApart, match="TypeError"):
        apart.apart(object)


@pytest.mark.parametrize("ends", [lambda: time.sleep(60), lambda: os.kill(os.getpid(), 9)])
def test_what_does_not_end_or_dies_is_no_answer(ends: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "PATIENCE_S", 0.3)
    before = {child.pid for child in psutil.Process().children()}
    with pytest.raises(apart.TriedApart, match="no answer"):
        apart.apart(ends)  # type: ignore[arg-type]
    assert {child.pid for child in psutil.Process().children()} <= before, "nor is a zombie left"


def test_products_of_a_pool_of_threads_do_not_hang_in_the_copy() -> None:
    """libgomp's threads are not copied: an op on several of them would wait for ever."""
    x = torch.randn(600, 600)
    x @ x
    assert apart.apart(lambda: float((x @ x).sum())) == pytest.approx(float((x @ x).sum()), rel=1e-3)
