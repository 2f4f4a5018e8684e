"""Drawn command lines start, feed, redirect and end a program under `gobrrr run` as they do without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.commands import ARGUMENTS, COMMANDS, FLAGS, NAMED, STREAMS, VARIABLES, Commands, draw, told
from tests.fuzz.twice import environment

QUICK, ALL = 4, 80


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ceilings") / "cache"
    environment(folder)
    return folder


@pytest.mark.parametrize(
    "seed", [*range(QUICK), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(QUICK, ALL))]
)
def test_a_drawn_command_line_does_the_same_watched(seed: int, tmp_path: Path, cache: Path) -> None:
    pair = Commands(tmp_path, cache).judge(draw(seed))
    if pair.difference():
        pytest.fail(told(draw(seed), pair, seed), pytrace=False)


def test_every_way_is_drawn() -> None:
    lines = [draw(seed) for seed in range(ALL)]
    assert {line.way for line in lines} == {*NAMED, *COMMANDS}
    assert {line.arguments for line in lines} == {*ARGUMENTS}
    assert {line.streams for line in lines} == {*STREAMS}
    assert {line.variables for line in lines} == {*VARIABLES}
    assert {line.flags for line in lines} == {*FLAGS}
