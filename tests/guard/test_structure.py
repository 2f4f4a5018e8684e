"""Each check of structure, from hand-made runs that differ in one thing alone: the check of that name speaks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gobrrr.errors import GobrrrError
from gobrrr.guard import judge
from gobrrr.guard.model import observation
from gobrrr.guard.model.observation import Call, Data, Epoch, Observation, Step
from gobrrr.guard.model.tensor_digest import Seen
from gobrrr.guard.model.verdict import VERDICTS, Check, Guarded, worst
from gobrrr.guard.verdicts import closeness, judging, structure


def seen(norm: float, bad: int = 0, numel: int = 100) -> Seen:
    """A tensor of this norm."""
    return Seen((numel,), "float32", f"{norm}", norm, bad, np.zeros(numel).tobytes())


def call(n: int = 0, **more: Any) -> Call:
    """The model's n-th, on four samples of its own."""
    data = Data(f"d{n}", tuple(f"{n}.{i}" for i in range(4)), 40)
    return msgspec.structs.replace(Call("Net#0", True, data, (seen(1.0),)), **more)


def step(n: int = 0, **more: Any) -> Step:
    """The n-th, in which all is well."""
    plain = Step(
        calls=(call(n),), losses=(1.0,), gradients={"a": seen(1.0), "b": seen(2.0), "frozen": None},
        updates={"a": seen(0.1), "b": seen(0.2)}, buffers={"mean": seen(3.0)}, hyperparameters=({"lr": "0.1"},),
    )  # fmt: skip
    return msgspec.structs.replace(plain, **more)


def run(second: Step | None = None, **more: Any) -> Observation:
    """Three steps; `second` in place of the one in the middle."""
    plain = Observation(steps=(step(0), second or step(1), step(2)), trainable={"a": True, "b": True, "frozen": False},
                        complete=True)  # fmt: skip
    return msgspec.structs.replace(plain, **more)


def data(n: int, **more: Any) -> Step:
    """A step that is given something else."""
    return step(n, calls=(call(n, data=msgspec.structs.replace(call(n).data, **more)),))


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((2.0, 60.0, 80.0), "unverified"), ((2.0, math.nan, 3.0), "unverified"),
        ((2.0, 60.0, 3.0), "wrong"), ((2.0, 3.0, 19.0), "wrong"), ((0.0, 3.0, 19.0), "wrong"),
    ],
)  # fmt: skip
def test_where_the_baseline_diverges_nothing_is_called_wrong(losses: tuple[float, ...], verdict: str) -> None:
    """A remedy of another rounding or order ends where gradients are zero, and the baseline might have."""

    def of(**more: Any) -> Observation:
        return run(steps=tuple(step(n, losses=(loss,), **more) for n, loss in enumerate(losses)))

    dead = of(gradients={"a": seen(0.0), "b": seen(2.0), "frozen": None})
    found = judge(of(), dead, again=of(), reference=None)
    assert found.verdict == verdict, found
    assert ("diverges by itself" in found.reasons[0]) == (verdict == "unverified")
    assert judge(of(), of(), again=of(), reference=of()).verdict in ("exact", "unverified")


def test_gradients_that_no_optimizer_takes_need_not_be_made() -> None:
    before, after = (run(trainable=run().trainable | {"backbone": wanted}) for wanted in (True, False))
    assert judge(before, after, again=before, reference=before).verdict == "exact"
    turned_on = judge(after, before, again=after, reference=after)
    assert turned_on.verdict == "wrong" and "requires_grad of backbone" in turned_on.reasons[0]
    infers = [msgspec.structs.replace(each, training=False) for each in (before, after)]
    assert judge(*infers, again=infers[0], reference=infers[0]).verdict == "wrong"


WRONG = {
    "no update": (run(training=False), "steps", "made no update"),
    "too short": (run(steps=(step(0), step(1))), "steps", "2 steps to the end, the baseline made 3"),
    "lost": (run(trainable={"a": True, "frozen": False}), "parameters", "b gone"),
    "new": (run(trainable=run().trainable | {"c": True}), "parameters", "c new"),
    "frozen": (run(trainable=run().trainable | {"b": False}), "parameters", "requires_grad of b"),
    "calls": (run(step(1, calls=(call(1), call(1)))), "data", "2 calls of models in step 2"),
    "fewer rows": (run(data(1, rows=("1.0", "1.1"))), "data", "step 2 was given 2 samples, the baseline 4"),
    "shorter rows": (run(data(1, num_elements=39)), "data", "had 39 elements in all, in the baseline 40"),
    "repeated": (run(data(1, digest="x", rows=("1.0", "1.0", "1.2", "1.3"))), "data", "1 samples came more often"),
    "mutated": (run(data(1, mutated=True)), "inputs", "Net#0 writes into"),
    "other model": (run(step(1, calls=(call(1, model="Net#1"),))), "mode", "Net#1 was called"),
    "eval": (run(step(1, calls=(call(1, training=False),))), "mode", "is in eval() mode"),
    "groups": (run(step(1, hyperparameters=())), "hyperparameters", "0 parameter groups"),
    "lr": (run(step(1, hyperparameters=({"lr": "0.2"},))), "hyperparameters", "lr is 0.2 in step 2, 0.1"),
    "decay": (run(step(1, hyperparameters=({"lr": "0.1", "decay": "1"},))), "hyperparameters", "decay is 1"),
    "no gradient": (run(step(1, gradients=step().gradients | {"a": None})), "gradients", "a have no gradient"),
    "a gradient": (run(step(1, gradients=step().gradients | {"frozen": seen(1.0)})), "gradients", "frozen have a"),
    "zero": (run(step(1, gradients=step().gradients | {"a": seen(0.0)})), "gradients", "gradient of a is zero"),
    "stale": (run(step(1, buffers={})), "buffers", "mean not updated"),
    "touched": (run(step(1, buffers={"mean": seen(3.0), "var": seen(1.0)})), "buffers", "var updated"),
    "still": (run(step(1, updates=step().updates | {"a": seen(0.0)})), "updates", "a no longer move"),
    "loss": (run(step(1, losses=(math.nan,))), "finite", "loss is not finite in step 2"),
    "bad gradient": (run(step(1, gradients=step().gradients | {"a": seen(1.0, 1)})), "finite", "gradients of a hold 1"),
    "bad update": (run(step(1, updates=step().updates | {"a": seen(0.1, 2)})), "finite", "updates of a hold 2"),
    "bad buffer": (run(step(1, buffers={"mean": seen(3.0, 3)})), "finite", "buffers of mean hold 3"),
    "bad output": (run(step(1, calls=(call(1, outputs=(seen(1.0, 1),)),))), "finite", "Net#0 gives 1"),
}  # fmt: skip


def speaking(baseline: Observation, candidate: Observation, **more: Any) -> list[Check]:
    """Checks that find something."""
    return [check for check in structure.checks(baseline, candidate, **more) if check.verdict != "exact"]


def test_where_nothing_differs_nothing_speaks() -> None:
    assert speaking(run(), run()) == []


@pytest.mark.parametrize("what", WRONG)
def test_each_fault_is_named_by_its_check_alone(what: str) -> None:
    candidate, name, reason = WRONG[what]
    (found,) = speaking(run(), candidate)
    assert (found.name, found.verdict) == (name, "wrong") and reason in found.reason, found


EPOCH = Epoch("Texts", 4, num=12, unique=12, indices="all")


@pytest.mark.parametrize(
    ("theirs", "ours", "regroups", "verdict"),
    [
        ((EPOCH,), (EPOCH,), True, "bounded"),
        ((EPOCH,), (EPOCH,), False, "wrong"),
        ((EPOCH,), (msgspec.structs.replace(EPOCH, unique=11),), True, "wrong"),
        ((EPOCH,), (msgspec.structs.replace(EPOCH, indices="some"),), True, "wrong"),
        ((EPOCH,), (msgspec.structs.replace(EPOCH, workers=2),), True, "wrong"),
        ((EPOCH,), (EPOCH, EPOCH), True, "wrong"),
        ((Epoch("Stream", 4),), (Epoch("Stream", 4),), True, "wrong"),
        ((), (), True, "wrong"),
    ],
)
def test_texts_that_are_in_the_data_twice_may_come_together(
    theirs: Any, ours: Any, regroups: bool, verdict: str
) -> None:
    """In batches of like length they do. Each index still comes once an epoch, from as many workers as before. Who only
    may change the order is not excused: a remedy that put one sample of every fourth batch in twice was bounded."""
    repeated, _, _ = WRONG["repeated"]
    before, after = (msgspec.structs.replace(each, epochs=e) for each, e in ((run(), theirs), (repeated, ours)))
    checks = speaking(before, after, order_may_change=True, regroups=regroups)
    (found,) = [check for check in checks if check.name == "data"]
    assert found.verdict == verdict


def test_what_the_baseline_does_too_is_no_fault() -> None:
    for candidate, _, _ in WRONG.values():
        assert speaking(candidate, candidate) in ([], [Check("finite", "wrong", "the loss is not finite in step 2")])


def test_another_order_is_a_change_unless_it_was_asked_for() -> None:
    swapped = run(data(1, digest="x", rows=call(2).data.rows)).steps[1], data(2, digest="y", rows=call(1).data.rows)
    turned = run(steps=(step(0), *swapped))
    (found,) = speaking(run(), turned)
    assert (found.name, found.verdict, found.reason) == ("data", "changed", "the same samples came in another order")
    (found,) = speaking(run(), turned, order_may_change=True)
    assert found.verdict == "bounded"
    other = run(data(1, digest="x", rows=("9.0", "9.1", "9.2", "9.3")))
    assert speaking(run(), other)[0].reason.startswith("other samples came")
    fewer = speaking(run(data(1, rows=("1.0", "1.0", "1.2", "1.3"))), other, order_may_change=True)
    assert [check.verdict for check in fewer] == ["bounded"], "samples that come less often are no fault"
    longer = run(data(1, digest="x", num_elements=44, rows=("9.0", "9.1", "9.2", "9.3")))
    assert [check.verdict for check in speaking(run(), longer, order_may_change=True)] == ["bounded"]


def test_a_run_that_was_cut_off_may_be_shorter() -> None:
    assert speaking(run(), run(steps=(step(0), step(1)), complete=False)) == []


@pytest.mark.parametrize(("norm", "told"), [(1.1e-5, True), (0.9e-5, False)])
def test_a_gradient_that_is_rounding_may_be_zero(norm: float, told: bool) -> None:
    """Two tensors of a hundred elements, one of norm sqrt(2): their root mean square is a tenth."""
    usual = {"a": seen(norm), "b": seen(math.sqrt(2))}
    baseline, candidate = run(step(1, gradients=usual)), run(step(1, gradients=usual | {"a": seen(0.0)}))
    assert bool(speaking(baseline, candidate)) is told


OBSERVED = {
    "too few steps of the baseline": {"baseline": run(steps=(step(0), step(1, updates=None)), complete=False)},
    "too few steps of the candidate": {"candidate": run(steps=(step(0),), complete=False)},
    "no loss of the baseline": {"baseline": run(step(1, losses=()))},
    "no loss of the candidate": {"candidate": run(step(1, losses=()))},
    "candidate: the disk was full": {"candidate": run(remarks=("the disk was full",))},
    "the baseline was not run twice": {"again": None},
    "it cannot be repeated": {"again": run(data(1, digest="x"))},
}


def unseen(**more: Any) -> list[str]:
    """Why something was not seen enough of."""
    whole = {"baseline": run(), "candidate": run(), "again": run(), **more}
    runs = closeness.Runs(whole["baseline"], whole["candidate"], whole["again"], run(), None, "")
    found = list(judging._seen_enough(runs))
    assert {(check.name, check.verdict) for check in found} <= {("observed", "unverified")}
    return [check.reason for check in found]


def test_what_was_seen_whole_is_enough() -> None:
    assert unseen() == []
    one = run(steps=(step(0),))
    assert unseen(baseline=one, candidate=one, again=one) == [], "a program of one step has no second"


@pytest.mark.parametrize("what", OBSERVED)
def test_each_thing_that_was_not_seen_is_named_alone(what: str) -> None:
    (reason,) = unseen(**OBSERVED[what])
    assert what in reason
    known = {"baseline": run(), "candidate": run(), "again": run(), **OBSERVED[what]}
    found = judge(known["baseline"], known["candidate"], again=known["again"], reference=None)
    assert found.verdict == "unverified" and f"observed: {reason}" in found.reasons


@pytest.mark.parametrize("outputs", [None, ()])
def test_an_inference_without_outputs_shows_nothing(outputs: tuple[Seen, ...] | None) -> None:
    def infers(outputs: tuple[Seen, ...] | None) -> Observation:
        return run(steps=tuple(Step(calls=(call(n, outputs=outputs),)) for n in range(3)), training=False)

    blind = infers(outputs)
    few = outputs is None
    word = "too few steps of the candidate" if few else "no output of the candidate's models"
    (reason,) = unseen(candidate=blind, baseline=infers((seen(1.0),)), again=infers((seen(1.0),)))
    assert word in reason
    seen_whole = infers((seen(1.0),))
    assert unseen(candidate=seen_whole, baseline=seen_whole, again=seen_whole) == []


def test_what_a_baseline_does_once_it_diverges_is_not_judged() -> None:
    """From the step on in which its own loss is not finite; what came before is."""
    lost = run(steps=(step(0), step(1), step(2, losses=(math.nan,))))
    other = run(steps=(step(0), step(1), step(2, gradients={"a": None, "b": None, "frozen": None})))
    found = judge(lost, other, again=lost, reference=None)
    assert found.verdict == "unverified"
    assert any("from step 3 on the program's own numbers" in reason for reason in found.reasons)
    assert not any("gradient" in reason for reason in found.reasons)
    early = run(steps=(step(0), step(1, gradients={"a": None, "b": None, "frozen": None}), step(2)))
    assert any("gradient" in reason for reason in judge(lost, early, again=lost, reference=None).reasons)


def test_the_worst_check_is_the_verdict_and_all_as_bad_are_its_reasons() -> None:
    said = [Check("a", "exact", "nothing"), Check("b", "wrong", "this", "m"), Check("c", "wrong", "that", "n"),
            Check("d", "changed", "less")]  # fmt: skip
    found = worst(said, {})
    assert (found.verdict, found.reasons, found.first_module) == ("wrong", ("b: this", "c: that"), "m")
    assert not found.green and not found
    assert worst([Check("a", "bounded", "so", "m")], {}).first_module == "" and worst([Check("a", "bounded")], {})
    assert worst([], {}).reasons == ("nothing was observed",) and worst([], {}).verdict == "unverified"
    assert [bool(Guarded(verdict)) for verdict in VERDICTS] == [True] * 3 + [False] * 3


def test_a_diverging_baseline_that_is_left_as_it_is_stays_green() -> None:
    grown = run(steps=tuple(step(n, losses=(loss,)) for n, loss in enumerate((2.0, 60.0, 80.0))))
    again = run(steps=grown.steps)
    assert judge(grown, again, again=again, reference=None).verdict == "bounded"


def test_an_observation_survives_its_file_and_a_stranger_does_not(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    observation.write(run(), file)
    assert observation.read(file) == run() and [path.name for path in tmp_path.iterdir()] == ["seen"]
    file.write_bytes(b"\xc1 no observation")
    with pytest.raises(GobrrrError, match="is no record of the guard"):
        observation.read(file)
    with pytest.raises(GobrrrError, match="cannot read"):
        observation.read(tmp_path / "absent")
    with file.open("wb") as large:
        large.truncate(observation.MAX_BYTES + 1)
    with pytest.raises(GobrrrError, match="too large"):
        observation.read(file)


@pytest.mark.parametrize("kind", ["gradients", "updates", "buffers"])
def test_what_was_not_looked_at_in_a_step_is_not_held_against_it(kind: str) -> None:
    blind = run(step(1, **{kind: None}))
    assert speaking(run(), blind) == speaking(blind, run()) == []
