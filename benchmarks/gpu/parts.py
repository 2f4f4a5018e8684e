"""The parts of `make gpu`: what rows each has, and the seconds that each row is expected to take on one H100."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.gpu import ceilings, labs, planting, traces, tunings, watching
from benchmarks.gpu.plants import PLANTS, Plant
from benchmarks.gpu.rows import Row, Work
from benchmarks.gpu.setting import Setting

TITLES = {
    1: "tests of tests/gpu, ceilings against the data sheet", 2: "planted programs, first half",
    3: "planted programs, second half", 4: "tune on GPT-2 small", 5: "tune on BERT base",
    6: "traces written here and read back, the cost of watching", 7: "single remedies under the guard",
    8: "the lab's experiments that need a device",
}  # fmt: skip
HALF = len(PLANTS) // 2
TUNE_S, ALONE_S, GUARD_S = 240.0, 200.0, 115.0
TINY_TUNE_S = 30.0


def works(part: int, setting: Setting) -> list[Work]:
    """What a part does, in order."""
    made = {
        1: _machine, 2: partial(_planted, PLANTS[:HALF]), 3: partial(_planted, PLANTS[HALF:]),
        4: partial(_model, "gpt2_small"), 5: partial(_model, "bert_base"), 6: _watched, 7: _remedies,
        8: _lab,
    }[part](setting)  # fmt: skip
    return [Work(*each) for each in made]


Made = list[tuple[str, float, Callable[[], Row]]]


def _machine(setting: Setting) -> Made:
    return [
        ("ceilings", 60, partial(ceilings.sheet, setting)),
        ("tests", 240, partial(ceilings.tests, setting)),
    ]


def _planted(plants: tuple[Plant, ...], setting: Setting) -> Made:
    return [(plant.name, 40, partial(planting.scored, plant, setting)) for plant in plants]


def _model(name: str, setting: Setting) -> Made:
    tune, alone = (TINY_TUNE_S, TINY_TUNE_S) if setting.tiny else (TUNE_S, ALONE_S)
    return [
        (f"tune {name}", tune + 30, partial(tunings.tuned, name, setting, tune)),
        (f"alone {name}", alone + 60, partial(tunings.alone, name, setting, alone)),
    ]


def _watched(setting: Setting) -> Made:
    sizes = ("tiny",) if setting.tiny else ("tiny", "middling")
    return [
        *((f"trace {name}", 45, partial(traces.read_back, name, setting)) for name in traces.NAMES),
        *(
            (f"watching {size}", 120, partial(watching.cost, size, setting, 0 if setting.tiny else 60))
            for size in sizes
        ),
    ]


def _lab(setting: Setting) -> Made:
    return [(name, 45, partial(labs.measured, name, setting)) for name in labs.names()]


def _remedies(setting: Setting) -> Made:
    seconds = TINY_TUNE_S if setting.tiny else GUARD_S
    return [
        (f"{remedy} on {plant}", seconds + 10, partial(tunings.guarded, remedy, plant, setting, seconds))
        for remedy, plant in tunings.REMEDIES
    ]
