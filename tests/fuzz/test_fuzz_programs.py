"""Programs made of pieces print, write, warn, end and train watched as they do plain: 2 chosen in CI, 200 drawn."""

from __future__ import annotations

import collections
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fuzz import grammar, programs
from tests.fuzz.grammar import SLOTS, Program, draw
from tests.fuzz.programs import Verdict
from tests.fuzz.twice import Outcome, Twice, environment

ALL = 200
Verdicts = dict[int | Program, list[Verdict]]
CHOSEN = (
    Program(
        (
            "checkpointed", "epochs with evaluation", "adversarial", "vmap in each step", "linearize and jvp",
            "checkpoint read back", "reference counts", "finalizers that call modules", "modules called from C",
            "pickled and copied",
        ), 180, 20
    ),
    Program(
        (
            "hooked", "in a thread", "no optimizer", "cProfile", "autograd profiler", "forked pool", "weak references",
            "subprocess", "atexit", "error",
        ), 180, 20
    ),
)  # fmt: skip
"""What programs of transparency/test_matrix.py that are slow do one by one."""
AT_ONCE = 2  # programs; each is one process at work
LEAST_SHARE = {"profile": 0.7, "count": 0.6, "sample": 0.6}
"""Of the programs, those in which a window of each kind must have opened: where none does, equal runs prove nothing."""
MOST_UNSTEADY = 0.05
"""Share of the draws whose plain runs may differ among themselves."""
SEEDS = [*CHOSEN, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(ALL))]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Verdicts:
    """The verdicts of every program that a selected test asks for; of a seed, its redraws first."""
    folder = tmp_path_factory.mktemp("fuzz")
    environment(folder / "cache")
    asked = {item.callspec.params["seed"] for item in request.session.items if _has_seed(item)} or set(CHOSEN)
    twices = {seed: Twice(folder / str(number), folder / "cache") for number, seed in enumerate(asked)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(_verdicts, twices.keys(), twices.values())
        return dict(zip(twices, found, strict=True))


def _verdicts(seed: int | Program, twice: Twice) -> list[Verdict]:
    return [programs.judge(seed, twice)] if isinstance(seed, Program) else programs.judge_seed(seed, twice)


def _has_seed(item: pytest.Item) -> bool:
    return item.path == Path(__file__) and "seed" in getattr(getattr(item, "callspec", None), "params", ())


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.pieces[0] if isinstance(seed, Program) else str(seed))
def test_watching_a_drawn_program_changes_nothing(seed: int | Program, judged: Verdicts) -> None:
    last = judged[seed][-1]
    if last.difference:
        pytest.fail(programs.told(last), pytrace=False)


def test_the_programs_were_watched_closely(judged: Verdicts, capsys: pytest.CaptureFixture[str]) -> None:
    draws = [verdict for verdicts in judged.values() for verdict in verdicts]
    opened = collections.Counter(kind for verdict in draws for kind in verdict.pair.windows)
    unsteady = [programs.told(verdict) for verdict in draws if verdict.unsteady]
    with capsys.disabled():
        print(f"\n{len(draws)} programs, {len(unsteady)} redrawn; windows opened: {dict(opened)}")
    assert all(opened[kind] >= least * len(draws) for kind, least in LEAST_SHARE.items()), opened
    assert len(unsteady) <= 1 + MOST_UNSTEADY * len(draws), "\n\n".join(unsteady)


# the grammar


def test_every_piece_is_drawn() -> None:
    drawn = collections.Counter(name for seed in range(ALL) for name in draw(seed).pieces)
    assert sorted(drawn) == sorted(grammar.PIECES)
    assert all(drawn[piece.name] >= 3 for piece in grammar.PIECES.values() if piece.weight >= 1), drawn


def test_a_seed_is_a_program() -> None:
    assert draw(17) == draw(17)
    assert len({draw(seed).source() for seed in range(ALL)}) == ALL


def test_every_drawn_program_is_python() -> None:
    for seed in range(ALL):
        compile(draw(seed).source(), f"seed {seed}", "exec")


def test_a_program_has_one_piece_of_each_slot() -> None:
    for seed in range(ALL):
        names = draw(seed).pieces
        slots = [grammar.PIECES[name].slot for name in names]
        assert [slots.count(slot) for slot in SLOTS] == [1] * len(SLOTS)
        assert len(set(names)) == len(names)


# what would hide a difference


PLAIN = Outcome(0, b"loss 1\n", b"a warning\n", {"a.txt": "12"})


@pytest.mark.parametrize(
    "watched",
    [
        Outcome(1, PLAIN.out, PLAIN.err, PLAIN.files),
        Outcome(0, b"loss 2\n", PLAIN.err, PLAIN.files),
        Outcome(0, PLAIN.out, b"", PLAIN.files),
        Outcome(0, PLAIN.out, PLAIN.err, {"a.txt": "12", "b.txt": "1"}),
        Outcome(None, PLAIN.out, PLAIN.err, PLAIN.files),
    ],
)
def test_each_part_of_an_outcome_is_compared(watched: Outcome) -> None:
    from tests.fuzz.twice import Pair

    assert not Pair(PLAIN, PLAIN, frozenset(), (), b"").difference()
    assert Pair(PLAIN, watched, frozenset(), (), b"").difference()
