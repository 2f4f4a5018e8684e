"""The parts of `make gpu` by worth: what rows each has, and the seconds that each row is expected to take on one H100.

Of what a device must prove, (a) is the twelve under run and tune, (b) the planted programs, (c) guard, remedies and
formats, (d) overhead and transparency, (e) the course's tables, (f) ranks, (g) promises against truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.gpu import ceilings, chip, course, ddp, planting, traces, tunings, watching
from benchmarks.gpu.plants import PLANTS
from benchmarks.gpu.rows import Row, Work
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.twelve import BY_NAME, TWELVE

TITLES = {
    1: "(a) twelve programs under run", 2: "(a) tune, a second model confirmed",
    3: "(g) promises against truth, (f) ranks, (d) overhead at 10 ms",
    4: "(c) formats and kernels, remedies under the guard", 5: "(a) tune, four more", 6: "(a) tune, three more",
    7: "(a) tune, the last three", 8: "(c) edits proven", 9: "(e) tables of the course, (d) overhead, traces read back",
    10: "(b) planted programs, first half; tests of tests/gpu", 11: "(b) planted programs, second half; the lab; bf16",
}  # fmt: skip
HALF = len(PLANTS) // 2
TUNED = (("gpt2_small", "bert_base"), ("photo_vit", "many_weights", "speech_gru", "host_metrics"),
         ("resnet_half", "checked_encoder", "click_rates"), ("bf16_words", "tidy_unet", "ragged_rows"))  # fmt: skip
PROMISED = ("gpt2_small", "bert_base", "resnet_half", "photo_vit")
TINY_TUNE_S, TINY_FULL_S = 8.0, 60.0
FULL = ("tune many_weights", "fused_optimizer on optimizer_loop", "prove by hand on resnet_half")
"""Rows that a tiny size gives time for trials, one of each kind; the others end with the diagnosis."""

Made = list[tuple[str, float, Callable[[], Row]]]


def works(part: int, setting: Setting) -> list[Work]:
    """What a part does, in order."""
    made: Made = {
        1: lambda: [("ceilings", 40, partial(ceilings.sheet, setting)), *_twelve(setting)],
        2: lambda: _tuned(TUNED[0], 250, setting),
        3: lambda: [*_promised(setting), *_ranks(setting), *_watched(("ten ms",), setting)],
        4: lambda: [*_chip(setting), *_remedies(tunings.REMEDIES[:4], setting)],
        5: lambda: _tuned(TUNED[1], 118, setting),
        6: lambda: _tuned(TUNED[2], 163, setting),
        7: lambda: _tuned(TUNED[3], 163, setting),
        8: lambda: _edits(120, setting),
        9: lambda: [*((name, 18, partial(do, setting)) for name, do in course.ROWS.items()),
                    *_watched(("tiny", "middling"), setting), *_traced(setting)],
        10: lambda: [*_planted(PLANTS[:HALF], setting), ("tests", 240, partial(ceilings.tests, setting))],
        11: lambda: [*_planted(PLANTS[HALF:], setting), *_remedies(tunings.REMEDIES[4:], setting),
                     *((name, 20, partial(course.measured, name, setting)) for name in course.names())],
    }[part]()  # fmt: skip
    return [Work(*each) for each in made]


def every(setting: Setting) -> list[Work]:
    """All rows of all parts."""
    return [work for part in TITLES for work in works(part, setting)]


def _spent(name: str, seconds: float, setting: Setting) -> float:
    return seconds if not setting.tiny else TINY_FULL_S if name in FULL else TINY_TUNE_S


def _twelve(setting: Setting) -> Made:
    return [(each.name, each.seconds, partial(planting.ordinary, each, setting)) for each in TWELVE]


def _tuned(names: tuple[str, ...], seconds: float, setting: Setting) -> Made:
    return [(row := f"tune {name}", seconds + 15, partial(tunings.tuned, name, setting, _spent(row, seconds, setting)))
            for name in names]  # fmt: skip


def _promised(setting: Setting) -> Made:
    return [(f"promises {name}", 40 + 20 * len(BY_NAME[name].others),
             partial(planting.promised, BY_NAME[name], setting)) for name in PROMISED]  # fmt: skip


def _ranks(setting: Setting) -> Made:
    kinds = {"DDP, one rank": (1, False), "DDP, two ranks": (2, False), "DDP, two ranks, one late": (2, True)}
    return [(name, 40, partial(ddp.job, *kind, setting)) for name, kind in kinds.items()]


def _watched(sizes: tuple[str, ...], setting: Setting) -> Made:
    return [(f"watching {size}", 100, partial(watching.cost, size, setting, 0 if setting.tiny else 60))
            for size in sizes]  # fmt: skip


def _chip(setting: Setting) -> Made:
    return [(name, 15, partial(do, setting)) for name, do in chip.ROWS.items()]


def _remedies(pairs: Sequence[tuple[str, str]], setting: Setting, seconds: float = 110) -> Made:
    return [(row := f"{remedy} on {plant}", seconds + 5,
             partial(tunings.guarded, remedy, plant, setting, _spent(row, seconds, setting)))
            for remedy, plant in pairs]  # fmt: skip


def _edits(seconds: float, setting: Setting) -> Made:
    return [(row := f"prove {edit} on {name}", seconds + 10,
             partial(tunings.proven, edit, name, setting, _spent(row, seconds, setting)))
            for edit, name in tunings.EDITS]  # fmt: skip


def _traced(setting: Setting) -> Made:
    return [(f"trace {name}", 35, partial(traces.read_back, name, setting)) for name in traces.NAMES]


def _planted(plants: tuple[planting.Plant, ...], setting: Setting) -> Made:
    return [(plant.name, 40, partial(planting.scored, plant, setting)) for plant in plants]
