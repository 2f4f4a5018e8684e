"""What timed processes did: accounts that differ, made up and of live arms."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gobrrr.guard.model.account import Account, Batch, Calls, Clock, Row, Weights, is_looked_at
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.model.verdict import Check
from gobrrr.guard.verdicts.timed import checks, without_texts

STEPS = [step for step in range(1, 200) if is_looked_at(step)]
PROGRAM = Path(__file__).parent / "programs" / "counted.py"


def seen(values: np.ndarray) -> Seen:
    return Seen(values.shape, "float64", values.tobytes().hex(), float(np.linalg.norm(values)), 0, values.tobytes())


def row(step: int, **counts) -> Row:
    evaluated = Calls(step // 50, 8 * (step // 50), 80 * (step // 50))
    plain = Row(step, updates=step, batches=step, samples=4 * step, trained=Calls(step, 4 * step, 40 * step),
                evaluated=evaluated, files=step // 50, lines=step // 10)  # fmt: skip
    return msgspec.structs.replace(plain, **counts)


def weights(speed=lambda step: 1.0, turn: float = 0.0, start: float = 0.0) -> list[Weights]:
    way, found = np.zeros(100), []
    toward = np.random.default_rng(0).normal(size=100)
    aside = np.random.default_rng(1).normal(size=100)
    for step in range(1, 200):
        way = way + speed(step) * (toward + turn * aside)
        if is_looked_at(step, 2):
            found.append(Weights(step, "shapes", seen(100 + start + way)))
    return found


def account(steps: Sequence[int] = STEPS, made=row, **fields) -> Account:
    plain = Account(
        rows=[made(step) for step in steps], batches=[Batch(step, f"i{step}", f"c{step}") for step in STEPS],
        weights=weights(), clocks=[Clock(10, 10_000_000, 11_000_000, 12_000_000)] * 4, seed=0,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **fields)


def late(step: int, elements: int | None = None) -> Row:
    half = step if step <= 50 else 50 + (step - 50) // 2
    return row(step, trained=Calls(step, 4 * half, 40 * (elements or half)))


def told(candidate: Account, baseline: Sequence[Account] = (account(), account())) -> dict[str, Check]:
    return {check.kind: check for check in checks(list(baseline), [candidate])}


def fewer(name: str, since: int, of: float = 0.5):
    def made(step: int) -> Row:
        whole = row(step)
        had = getattr(row(min(step, since)), name)
        return msgspec.structs.replace(whole, **{name: int(had + (getattr(whole, name) - had) * of)})

    return made


def batches(since: int, indices: str = "i", content: str = "x") -> list[Batch]:
    return [Batch(n, f"{indices if n >= since else 'i'}{n}", f"{content if n >= since else 'c'}{n}") for n in STEPS]


def test_the_same_again_is_exact_and_no_account_is_no_verdict() -> None:
    assert [check.verdict for check in told(account()).values()] == ["exact"]
    assert [check.verdict for check in checks([], [account()])] == ["unverified"]


@pytest.mark.parametrize(
    ("kind", "said", "candidate"),
    [
        ("samples", "392 of 784 samples by step 196", account(made=fewer("samples", 0))),
        ("samples", "1,176 samples by step 196, the program as it is has 784", account(made=fewer("samples", 0, 1.5))),
        ("samples", "840 samples by step 196, the program as it is has 784",
         account(made=lambda step: row(step, samples=4 * (step + max(0, step - 100) // 7 + (step > 195))))),
        ("updates", "118 of 196 updates by step 196", account(made=fewer("updates", 40))),
        ("output", "9 of 19 lines printed by step 196", account(made=fewer("lines", 0))),
        ("files", "0 of 3 files written by step 196", account(made=fewer("files", 0, 0.0))),
        (
            "evaluation",
            "0 of 3 calls of models in eval mode by step 196",
            account(made=lambda step: row(step, evaluated=Calls())),
        ),
        (
            "evaluation",
            "12 of 24 samples given to models in eval mode by step 196",
            account(made=lambda step: row(step, evaluated=Calls(step // 50, 4 * (step // 50), 40 * (step // 50)))),
        ),
        ("order", "other samples are drawn from batch 31 on", account(batches=batches(31, indices="j"))),
        ("data", "batches differ from number 31 on", account(batches=batches(31))),
        ("weights", "89% of the way apart by step 8", account(weights=weights(turn=1.0))),
        (
            "weights",
            "from step 1 to 96 its weights go 0.49 times",
            account(weights=weights(lambda step: float(step < 49))),
        ),
        (
            "weights",
            "from step 128 to 192 its weights go 0.17 times",
            account(weights=weights(lambda step: float(step < 140))),
        ),
        ("random", "begins from other weights", account(weights=weights(start=50.0))),
        ("end", "ended after 40 steps, the program as it is makes 196 or more", account(STEPS[:40], ended=40)),
        (
            "clock",
            "the program's clock says 5 ms for a block of 12 ms",
            account(clocks=[Clock(10, 5_000_000, 5_000_000, 12_000_000)] * 4),
        ),
        (
            "clock",
            "the program's clock says 5 ms for a block of 12 ms",
            account(clocks=[Clock(10, 5_000_000, 5_000_000, 12_000_000, 6_000_000)] * 4),
        ),
        (
            "time",
            "the step is 2.00 times as fast, with what lies between steps 1.00",
            account(clocks=[Clock(10, 5_000_000, 11_000_000, 12_000_000)] * 4),
        ),
    ],
)  # fmt: skip
def test_what_differs_is_named(kind: str, said: str, candidate: Account) -> None:
    found = told(candidate)
    assert kind in found and said in found[kind].reason
    assert found[kind].verdict in ("changed", "wrong")


def test_one_start_whose_rest_scatters_has_moved_nothing() -> None:
    """3 % of a step more between steps: of one start it is noise, of two each it is told."""
    candidate = account(clocks=[Clock(10, 9_900_000, 11_300_000, 12_300_000)] * 4)
    assert "time" not in told(candidate)
    found = {check.kind for check in checks([account(), account()], [candidate, candidate])}
    assert "time" in found


@pytest.mark.parametrize(
    "candidate",
    [
        account(weights=weights(turn=0.05)),
        account(made=lambda step: row(step, samples=4 * step + 8, batches=step + 2)),
        account(made=lambda step: row(step, trained=Calls(step // 4, 4 * step, 40 * step))),
        account(made=lambda step: row(step, evaluated=Calls(1, 8 * (step // 50), 80 * (step // 50)))),
        account(made=lambda step: row(step, lines=(step - 1) // 10, files=(step - 1) // 50)),
        account(batches=batches(1), weights=weights(turn=0.01)),
        account(clocks=[Clock(10, 5_000_000, 6_000_000, 7_000_000)] * 4),
        account(made=lambda step: late(step, elements=step)),
    ],
    ids=["rounding", "ahead", "one call", "one evaluation", "later in the step", "made otherwise", "faster",
         "rows of more elements, later"],
)  # fmt: skip
def test_honest_ways_of_writing_pass(candidate: Account) -> None:
    assert {check.verdict for check in told(candidate).values()} <= {"exact", "equivalent"}


def test_what_two_processes_of_the_baseline_disagree_on_is_not_asked() -> None:
    noisy = [account(batches=batches(5), made=fewer("lines", 0), weights=weights(turn=turn)) for turn in (0.0, 1.0)]
    noisy[1].rows, noisy[1].batches = account().rows, account().batches
    candidate = account(batches=batches(5, "k", "k"), made=lambda step: row(step, lines=0), weights=weights(turn=-0.5))
    assert [check.verdict for check in told(candidate, noisy).values()] == ["exact"]
    alone = told(account(batches=batches(31)), [account()])
    assert alone["data"].verdict == "unverified", "one process may draw its samples by chance"


def inferring(
    batch: int, given: float = 1.0, made: float = 1.0, inflated: int = 1, models: int = 1, **fields
) -> Account:
    """A program that learns nothing, by so many samples a call of each model; a line for every 24 of them."""

    def row_of(step: int) -> Row:
        rows = step * batch * (inflated if step > 40 else 1)
        calls = Calls(models * step, models * rows, 10 * models * rows)
        return Row(step, evaluated=calls, lines=rows // 24, given=(given * rows, 1.0 * rows),
                   made=(made * rows, 1.0 * rows), by_model=(rows,) * models)  # fmt: skip

    return account(made=row_of, batches=[], weights=[], **fields)


def batched(candidate: Account, *baseline: Account) -> dict[str, str]:
    rows = (1.0, candidate.rows[0].evaluated.rows / candidate.rows[0].evaluated.calls)
    return {check.kind: check.verdict for check in checks(list(baseline), [candidate], rows)}


def test_an_inference_may_batch_its_calls_otherwise_and_is_held_to_equal_samples() -> None:
    plain, whole = (inferring(1),) * 2, (inferring(1, ended=196),) * 2
    assert list(batched(inferring(24), *plain).values()) == ["exact"]
    ensemble = (inferring(1, models=3),) * 2
    assert list(batched(inferring(24, models=3), *ensemble).values()) == ["exact"], "three calls a step"
    assert batched(inferring(8, steps=STEPS[:8], ended=8), *whole)["end"] == "changed", "64 of 196 samples"
    silent = inferring(2)
    silent.rows = [msgspec.structs.replace(row, lines=0) for row in silent.rows]
    assert batched(silent, *plain)["output"] == "changed"
    assert batched(inferring(24, given=0.5, made=1.001), *plain)["data"] == "changed"
    assert list(batched(inferring(24, given=0.5), *plain).values()) == ["exact"], (
        "padding cut off: outputs are the same"
    )
    assert batched(inferring(24, made=5.0), *plain)["outputs"] == "changed"
    assert batched(inferring(24, made=math.nan), *plain)["outputs"] == "changed"
    assert batched(inferring(24, given=math.nan, made=1.001), *plain)["data"] == "changed"


def test_samples_that_nobody_compared_are_no_unit_of_time() -> None:
    """Calls that are given a thousand rows more, once nobody looks, would be a thousand times as fast."""
    assert batched(inferring(24, inflated=1000), inferring(1), inferring(1))["samples"] == "unverified"


def test_calls_of_fewer_samples_than_were_compared_are_no_unit_of_time_either() -> None:
    watched = inferring(24)
    said = {check.kind: check.verdict for check in checks([inferring(1)] * 2, [watched], (1.0, 48.0))}
    assert said["samples"] == "unverified"


def test_what_the_baseline_does_now_and_then_between_steps_is_no_moved_work() -> None:
    """Time between steps is more in one of its processes than in the candidate's."""
    usual, busy = Clock(10, 10_000_000, 11_000_000, 12_000_000), Clock(10, 10_000_000, 20_000_000, 21_000_000)
    baseline = [account(clocks=[usual] * 4), account(clocks=[usual] * 4), account(clocks=[busy] * 4)]
    assert "time" not in told(account(clocks=[Clock(10, 5_000_000, 11_000_000, 12_000_000)] * 4), baseline)


def test_a_baseline_that_changes_its_parameters_lets_an_edit_do_so() -> None:
    changing = [account(weights=other(0)) for _ in range(2)]
    assert "weights" not in told(account(weights=other(0)), changing)


def otherwise(since: int, turn: float) -> list[Weights]:
    """The baseline's own way, bit for bit, and another one from a step on."""
    return [own if own.step < since else other for own, other in zip(weights(), weights(turn=turn), strict=True)]


@pytest.mark.parametrize(("turn", "verdict"), [(0.3, "changed"), (0.1, "unverified")])
def test_the_same_weights_that_go_another_way_later_are_no_rounding(turn: float, verdict: str) -> None:
    found = told(account(weights=otherwise(96, turn)))["weights"]
    assert found.verdict == verdict and "otherwise later" in found.reason
    rounded = [msgspec.structs.replace(each, seen=seen(np.frombuffer(each.seen.sketch) + 1e-9)) for each in
               otherwise(96, turn)]  # fmt: skip
    assert "weights" not in told(account(weights=rounded)), "rounding grows"


def test_steps_that_were_never_made_are_told_by_the_count() -> None:
    """An edit that reaches into its own process may add to what that tells."""
    found = told(account(STEPS, clocks=[Clock(60, 10_000_000, 11_000_000, 12_000_000)] * 4))
    assert found["clock"].verdict == "wrong" and "told of 240 steps, and made 202 at most" in found["clock"].reason


def seeing(made: float, extra: int, turn: float = 0.0) -> Account:
    """An evaluation in every 50th step, and `extra` calls before the first."""

    def row_of(step: int) -> Row:
        num = step // 50
        return row(step, evaluated=Calls(num + extra, 8 * num + extra, 80 * num), made=(made * num, 10.0 * num))

    return account(made=row_of, weights=weights(turn=turn))


def test_a_call_more_at_first_excuses_no_other_evaluation() -> None:
    plain = [seeing(5.0, 0) for _ in range(2)]
    assert "outputs" not in told(seeing(5.0, 1), plain) and "outputs" in told(seeing(0.0, 1), plain)
    assert "outputs" in told(seeing(5.1, 0), plain), "of the same weights"
    assert "outputs" not in told(seeing(5.1, 0, turn=0.01), plain), "of weights that differ by rounding"


LINES = [f"step {n} loss {2.0 / (n + 1):.4f}" for n in range(200)]


@pytest.mark.parametrize(("lines", "same"), [
    (LINES, True), (["using sdpa", *LINES], True), (LINES[:50], True), ([f"{line}0" for line in LINES], True),
    ([line.replace("loss", "err") for line in LINES], False), (LINES[:100] + LINES[:100], False),
    ([*LINES[:100], *("step 7 loss 0.1" for _ in LINES[100:])], False), ([*LINES[:99], "odd", *LINES[100:]], True),
])  # fmt: skip
@pytest.mark.parametrize("place", ["said", "files"])
def test_lines_that_are_printed_or_written_are_the_programs(place: str, lines: list[str], same: bool) -> None:
    def one(text: list[str]) -> Account:
        whole = "\n".join([*text, "cut"])
        return account(**{place: whole if place == "said" else {"log.txt": whole}})

    found = told(one(lines), [one(LINES), one(LINES)])
    assert bool({"output", "files"} & found.keys()) is not same
    noisy = [one(LINES), one([f"{line} in {n} s" for n, line in enumerate(LINES)])]
    assert not {"output", "files"} & told(one(lines), noisy).keys(), "the program's own runs differ"


def test_under_a_gate_other_numbers_may_be_printed_and_not_less_done() -> None:
    lines = [account(said="".join(f"loss {step * scale}\n" for step in range(9))) for scale in (0.1, 0.1, 0.2)]
    bare = without_texts(lines)
    assert told(lines[2], lines[:2])["output"].verdict == "changed"
    assert [check.verdict for check in told(bare[2], bare[:2]).values()] == ["exact"]
    assert told(*without_texts([account(made=fewer("samples", 1))]), bare[:2])["samples"].verdict == "changed"


def test_how_far_weights_go_where_they_hardly_go_any_more_is_noise() -> None:
    little, twice = (account(weights=weights(lambda step, by=by: 1.0 if step < 128 else by)) for by in (0.01, 0.02))
    assert "weights" not in told(twice, [little, little])


def test_a_forward_that_changes_no_weight_may_go() -> None:
    def without_loader(half: bool, turn: float) -> Account:
        calls = 1 if half else 2
        first = (1.0 * calls, 10.0 * calls)  # of the calls before the first update

        def made(step: int) -> Row:
            trained = Calls(calls * step, calls * 4 * step, 40 * calls * step)
            return row(step, batches=0, samples=0, trained=trained, made=first)

        return account(made=made, batches=[], weights=weights(turn=turn))

    plain = [without_loader(False, 0.0)] * 2
    assert [check.verdict for check in told(without_loader(True, 0.0), plain).values()] == ["exact"]
    assert "samples" in told(without_loader(True, 0.05), plain), "half of what the update was made of, perhaps"


def test_two_processes_of_the_baseline_may_be_looked_at_in_different_steps() -> None:
    baseline = (account(), account(weights=weights()[::2]))
    found = told(account(weights=weights(turn=0.05)), baseline)
    assert {check.verdict for check in found.values()} <= {"exact", "equivalent"}


def test_a_program_that_ends_where_it_did_makes_no_more_steps() -> None:
    ends = [account(STEPS[:64], ended=64)] * 2
    assert [check.verdict for check in told(account(STEPS[:64], ended=64), ends).values()] == ["exact"]
    assert "ends after 64" in told(account(), ends)["end"].reason


def counted(folder: Path, *words: str) -> Account:
    from gobrrr.trial.arm.arm import Arm

    (folder / "work").mkdir(parents=True)
    one = Arm([sys.executable, str(PROGRAM), *words], folder / "arm", source=folder / "work", account=True)
    try:
        one.start(100)
        for steps in (9, 20, 20, 20):
            block = one.run(steps, 1e9)
            assert block.referee_ns >= block.whole_ns or "--clock" in words
    finally:
        one.end()
    assert one.account is not None
    return one.account


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> list[Account]:
    pytest.importorskip("torch")
    return [counted(tmp_path_factory.mktemp("plain") / str(number)) for number in range(2)]


def test_an_arm_counts_what_its_program_does(plain) -> None:
    last = plain[0].rows[-1]
    assert (last.step, last.updates, last.batches, last.samples) == (70, 70, 70, 280)
    assert last.trained == Calls(280, 280 * 8, 280 * 8) and last.evaluated == Calls(6, 6 * 32, 6 * 32 * 8)
    assert (last.lines, last.files) == (6, 1) and last.written, "what comes behind the step's end is the next one's"
    assert plain[0].said.count("\n") == 6 and plain[0].files and plain[0].files == plain[1].files
    assert plain[0].batches == plain[1].batches and plain[0].weights == plain[1].weights and plain[0].seed == 0
    assert [each.step for each in plain[0].weights] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    assert sum(clock.steps for clock in plain[0].clocks) == 69


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (("--skips", "40"), {"weights"}),
        (("--timed",), {"evaluation", "output", "files"}),
        (("--clock",), {"clock"}),
        (("--regrouped", "--lent", "--rounds"), {""}),
    ],
)  # fmt: skip
def test_a_live_arm_that_does_otherwise_is_seen(words, kinds, plain, tmp_path: Path) -> None:
    found = list(checks(plain, [counted(tmp_path, *words)]))
    assert {check.kind for check in found} == kinds, found
    assert all((check.verdict in ("exact", "equivalent")) == (not check.kind) for check in found)


@pytest.mark.parametrize(("share", "less"), [(1.0, False), (0.9, False), (0.5, True)])
def test_files_that_hold_less_are_told(share: float, less: bool) -> None:
    plain = [account(made=lambda step: row(step, files=1, written=20_000 * step)) for _ in range(2)]
    candidate = account(made=lambda step: row(step, files=1, written=int(20_000 * share * step)))
    assert ("files" in told(candidate, plain)) == less


def other(step: int) -> list[Weights]:
    return [msgspec.structs.replace(each, shapes="shapes" if each.step < 8 else "more") for each in weights()]


@pytest.mark.parametrize(
    ("kind", "candidate"),
    [
        ("samples", account(made=late)),
        ("weights", account(weights=other(0))),
        ("outputs", account(made=lambda step: row(step, made=(0.1 * step, 10.0 * step)))),
    ],
    ids=["half of each batch, late", "a parameter more after some steps", "other outputs of evaluations"],
)
def test_what_a_reviewer_found_is_seen(kind: str, candidate: Account) -> None:
    plain = [account(made=lambda step: row(step, made=(5.0 * step, 10.0 * step))) for _ in range(2)]
    same = account(made=lambda step: row(step, made=(5.0 * step, 10.0 * step)))
    assert kind not in told(same, plain) and kind in told(candidate, plain)
