"""Each limit of closeness, from hand-made runs: a candidate just inside it passes, just beyond it the check speaks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from gobrrr.guard.model.observation import Call, Data, Observation, Step
from gobrrr.guard.model.tensor_digest import EPS, Seen, distance, same, scalar
from gobrrr.guard.model.verdict import Check
from gobrrr.guard.verdicts import closeness, trajectory

NEAR, FAR = 0.98, 1.02
ERROR = 1e-3
"""Of the norm: what the baseline errs where nothing else is said, far above any rounding."""

Tensors = dict[str, np.ndarray]
Make = Callable[[Tensors], Step]


def seen(values: np.ndarray) -> Seen:
    """A tensor kept whole."""
    data = np.ascontiguousarray(values, np.float64)
    return Seen(
        data.shape, "float32", hashlib.sha256(data.tobytes()).hexdigest(), float(np.linalg.norm(data)), 0,
        data.tobytes(),
    )  # fmt: skip


def gradients(tensors: Tensors) -> Step:
    """A step that has these gradients."""
    return Step(gradients=told(tensors), updates={})


def outputs(tensors: Tensors) -> Step:
    """A step whose model gives these."""
    (values,) = tensors.values()
    return Step(calls=(Call("m", True, Data("d"), (seen(values),)),), updates={})


def told(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Each as the guard sees it."""
    return {name: seen(values) for name, values in tensors.items()}


def run(*steps: Step) -> Observation:
    """A run of these steps."""
    return Observation(steps=steps)


def truth(*sizes: int) -> Tensors:
    """Tensors of norm 1."""
    random = np.random.default_rng(0)
    drawn = [random.standard_normal(size) for size in sizes]
    return {f"p{n}": values / np.linalg.norm(values) for n, values in enumerate(drawn)}


def off(tensors: Tensors, error: float, seed: int = 1) -> Tensors:
    """Each moved by `error` of its norm, at right angles to itself."""
    random, found = np.random.default_rng(seed), {}
    for name, values in tensors.items():
        drawn = random.standard_normal(values.shape)
        drawn -= (drawn @ values) / (values @ values) * values
        found[name] = values + error * np.linalg.norm(values) / np.linalg.norm(drawn) * drawn
    return found


def judged(
    baseline: Observation, candidate: Observation, reference: Observation | None, *, precision: str = "",
    naive: Observation | None = None, is_naive: bool = False,
) -> Check:  # fmt: skip
    """The worst check of a tensor's kind."""
    runs = closeness.Runs(baseline, candidate, None, reference, naive, precision, is_naive)
    found = [check for check in closeness.checks(runs, {}) if check.name in closeness.KINDS]
    return max(found, key=lambda check: closeness.VERDICTS.index(check.verdict))


def of_gradients(sizes: tuple[int, ...], own: float, candidate: float, **more: Any) -> Check:
    """One step: the baseline's gradients err `own`, the candidate's `candidate`."""
    true = truth(*sizes)
    return judged(run(gradients(off(true, own))), run(gradients(off(true, candidate, seed=2))), run(gradients(true)),
                  **more)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "times"),
    [(1000, 2.0), (999, 8.0), (11, 8.0), (10, 10.0)],
)
def test_the_ratio_of_errors_by_size(size: int, times: float) -> None:
    assert of_gradients((size,), ERROR, NEAR * times * ERROR).verdict == "equivalent"
    beyond = of_gradients((size,), ERROR, FAR * times * ERROR)
    assert (beyond.name, beyond.verdict, beyond.module) == ("gradients", "changed", "p0")
    assert f"{FAR * times:.3g} times" in beyond.reason


def test_many_small_ones_may_not_all_err_more() -> None:
    assert of_gradients((100,) * 20, ERROR, NEAR * 2 * ERROR).verdict == "equivalent"
    assert of_gradients((100,) * 20, ERROR, FAR * 2 * ERROR).verdict == "changed"


def test_some_small_ones_may() -> None:
    true = truth(*(100,) * 20)
    near = off(true, ERROR, seed=2) | {"p3": off(true, 7 * ERROR)["p3"]}
    assert judged(run(gradients(off(true, ERROR))), run(gradients(near)), run(gradients(true))).verdict == "equivalent"


@pytest.mark.parametrize(("begun", "times"), [("own", 16.0), ("part", 2.0), ("baseline", 2.0)])
def test_steps_from_other_weights_may_err_more(begun: str, times: float) -> None:
    true = truth(2000)

    def found(error: float) -> Check:
        first, second = off(true, ERROR, seed=2), off(true, error, seed=3)
        last = Step(gradients=told(second), updates={}, begun=begun)
        plain = gradients(off(true, ERROR))
        return judged(run(plain, plain), run(gradients(first), last), run(gradients(true), gradients(true)))

    assert found(NEAR * times * ERROR).verdict == "equivalent"
    assert found(FAR * times * ERROR).verdict == "changed"


def test_what_any_sum_errs_is_granted() -> None:
    granted = 2 * 128 * EPS["float32"]
    assert of_gradients((2000,), 0.0, NEAR * granted).verdict == "equivalent"
    assert of_gradients((2000,), 0.0, FAR * granted).verdict == "changed"


def test_the_worst_step_of_the_baseline_counts_for_all() -> None:
    true = truth(2000)

    def found(error: float) -> Check:
        steps = run(gradients(off(true, ERROR)), gradients(off(true, 4 * ERROR)))
        other = run(gradients(off(true, error, seed=2)), gradients(off(true, 4 * ERROR)))
        return judged(steps, other, run(gradients(true), gradients(true)))

    assert found(NEAR * 8 * ERROR).verdict == "equivalent"
    assert found(FAR * 8 * ERROR).verdict == "changed"


def test_without_float64_the_baseline_is_the_truth() -> None:
    true = truth(2000)

    def found(error: float) -> Check:
        return judged(run(gradients(true)), run(gradients(off(true, error))), None)

    granted = 2 * 1e-4
    assert found(NEAR * granted).verdict == "bounded"
    assert found(FAR * granted).verdict == "changed"


@pytest.mark.parametrize(("make", "most"), [(gradients, 0.2), (outputs, 0.1)])
def test_what_a_lower_precision_explains(make: Make, most: float) -> None:
    true = truth(2000)

    def found(error: float) -> Check:
        other = run(make(off(true, error)))
        return judged(run(make(off(true, 1e-7))), other, run(make(true)), precision="bfloat16", naive=other)

    assert found(NEAR * most).verdict == "bounded"
    beyond = found(FAR * most)
    assert beyond.verdict == "changed" and f"the {most:g} that it explains" in beyond.reason


@pytest.mark.parametrize(
    ("naive_by", "off_by", "verdict"),
    [
        (0.01, 0.015, "equivalent"),
        (0.01, 0.05, "changed"),
        (2.0, 2.0, "unverified"),
        (math.inf, 0.001, "unverified"),
    ],
)
def test_a_lower_precisions_losses_may_stray_twice_as_far_as_the_naive_versions(
    naive_by: float, off_by: float, verdict: str
) -> None:
    """Of steps that each began from its own weights; float64 is closer, and no other seed was run. A naive version that
    is far away itself, or overflows, says nothing."""
    plain, naive, ours = (
        Observation(steps=tuple(Step(losses=(1.0 + by,), updates={}) for _ in range(30)))
        for by in (0.0, naive_by, off_by)
    )
    found = trajectory.check(plain, ours, (), plain, {}, naive=naive)
    assert found.verdict == verdict, found


def of_norms(
    norms: Sequence[float], errors: Sequence[float], precision: str, naive_by: Sequence[float] = (),
    sizes: Sequence[int] = (),
) -> Check:  # fmt: skip
    """Steps whose gradients have these norms and are off by so much each, at a lower precision as its naive version, or
    as far as that is `naive_by`. `sizes`: elements that were looked at in each, of as large a tensor."""
    each = [truth(size) for size in sizes or [2000] * len(norms)]
    scales = [norm * math.sqrt(len(t["p0"]) / 2000) for norm, t in zip(norms, each, strict=True)]
    exact = [{"p0": scale * t["p0"]} for scale, t in zip(scales, each, strict=True)]

    def moved(by: Sequence[float], seed: int) -> Observation:
        steps = (gradients(off(t, e / n, seed)) for t, e, n in zip(exact, by, norms, strict=True))
        return run(*(msgspec.structs.replace(step, begun="baseline" if naive_by else "own") for step in steps))

    ours, plain = moved(errors, 3), run(*(gradients(off(t, 1e-7)) for t in exact))
    naive = (moved(naive_by, 4) if naive_by else ours) if precision else None
    return judged(plain, ours, run(*map(gradients, exact)), precision=precision, naive=naive)


@pytest.mark.parametrize(
    ("error", "precision", "verdict"),
    [(0.0062, "bfloat16", "bounded"), (0.019, "bfloat16", "bounded"), (0.022, "bfloat16", "wrong"),
     (0.0062, "", "wrong")],
)  # fmt: skip
def test_where_a_batchs_gradients_cancel_a_lower_precision_errs_what_it_errs_elsewhere(
    error: float, precision: str, verdict: str
) -> None:
    """The norms of a classifier's first steps, and what bf16 errs: held against the third step alone it was wrong. An
    error as large as the gradient is, as that of one that was left out; and so is any without a lower precision."""
    others = (0.0063, 0.0065, 0.0072, 0.008, 0.0075) if precision else [1e-7] * 5
    errors = [*others[:2], error * (1.0 if precision else 2.0), *others[2:]]
    found = of_norms([0.55, 0.56, 0.022, 2.2, 0.57, 1.1], errors, precision)
    assert found.verdict == verdict, found


def test_what_the_naive_version_errs_in_a_dip_is_granted_in_no_other_step() -> None:
    norms, usual = [0.55, 0.56, 0.022, 2.2, 0.57, 1.1], [0.0063, 0.0065, 0.0143, 0.0072, 0.008, 0.0075]
    scaled = [*usual[:5], 0.18 * 1.1]
    assert of_norms(norms, usual, "bfloat16", usual).verdict == "bounded"
    assert of_norms(norms, scaled, "bfloat16", usual).verdict == "changed"


def test_a_dip_is_one_among_steps_that_were_looked_at_by_samples_and_whole() -> None:
    norms, errors = [0.55, 0.56, 0.022, 2.2, 0.57, 1.1], [0.0063, 0.0065, 0.014, 0.0072, 0.008, 0.0075]
    few, all_ = 1200, 240_000
    for sizes in ((all_, all_, few, few, few, all_), (few, few, all_, few, few, few)):
        assert of_norms(norms, errors, "bfloat16", sizes=sizes).verdict == "bounded"
    flat, sizes = [0.55, 0.56, 0.55, 2.2, 0.57, 1.1], (all_, all_, few, all_, all_, all_)
    assert of_norms(flat, [*errors[:2], 0.35, *errors[3:]], "bfloat16", sizes=sizes).verdict != "bounded"


@pytest.mark.parametrize(
    "norms",
    [[1.0, 1.0, 1.0, 0.02, 0.02, 0.02], [0.02, 0.02, 0.02, 1.0, 1.0, 1.0], [1.0, 0.3, 0.1, 0.03, 0.01],
     [1.0, 1.0, 1.0, 0.02], [1.0, 0.02, 1.0, 0.02, 1.0, 0.02], [1.0, 1.0, 0.2, 1.0, 1.0]],
    ids=["they fall", "they rise", "they fall steadily", "the last", "two tasks in turn", "hardly a dip"],
)  # fmt: skip
def test_small_gradients_that_are_no_dip_are_held_against_themselves(norms: list[float]) -> None:
    errors = [0.001 * norm for norm in norms]
    errors[norms.index(min(norms))] = 0.6 * min(norms)
    assert of_norms(norms, errors, "bfloat16").verdict in ("wrong", "changed")
    assert of_norms(norms, [0.001 * norm for norm in norms], "bfloat16").verdict == "bounded"


@pytest.mark.parametrize(
    ("naive_by", "by", "verdict"),
    [(0.45, 0.5, "bounded"), (0.1, 0.5, "wrong"), (None, 0.5, "bounded"), (None, 2.5, "wrong")],
    ids=["as the naive version", "further", "the naive version itself", "that is no direction any more"],
)
def test_a_gradient_that_cancels_in_each_step_is_as_far_off_as_the_naive_versions(
    naive_by: float | None, by: float, verdict: str
) -> None:
    """One small tensor of two, a sum over all places; together they are well within what the precision explains."""
    true = truth(4000, 2000)
    true["p1"] = 0.05 * true["p1"]

    def with_last(error: float) -> Observation:
        return run(gradients({**off(true, 0.01), "p1": off(true, error, seed=2)["p1"]}))

    naive = None if naive_by is None else with_last(naive_by)
    found = judged(run(gradients(off(true, 1e-7))), with_last(by), run(gradients(true)), precision="bfloat16",
                   naive=naive, is_naive=naive is None)  # fmt: skip
    assert found.verdict == verdict, found


def test_a_lower_precision_may_err_what_the_naive_version_errs() -> None:
    true = truth(2000)

    def found(error: float) -> Check:
        naive = run(gradients(off(true, 0.01)))
        return judged(run(gradients(off(true, 1e-6))), run(gradients(off(true, error, seed=2))), run(gradients(true)),
                      precision="bfloat16", naive=naive)  # fmt: skip

    assert found(NEAR * 0.02).verdict == "bounded"
    assert found(FAR * 0.02).verdict == "changed"


@pytest.mark.parametrize(("error", "plausible"), [(0.0294, True), (0.0306, False)])
def test_a_reference_that_drew_other_numbers_is_none(error: float, plausible: bool) -> None:
    true = truth(2000)
    assert closeness.plausible(run(outputs(off(true, error))), run(outputs(true))) is plausible
    assert closeness.plausible(run(outputs(true)), run()) is False


@pytest.mark.parametrize(
    ("times", "verdict"), [(1.24, "changed"), (1.26, "wrong"), (1 / 1.24, "changed"), (0.78, "wrong")]
)
def test_another_scale_is_wrong(times: float, verdict: str) -> None:
    true = truth(2000)
    scaled = {name: times * values for name, values in true.items()}
    found = judged(run(gradients(off(true, ERROR))), run(gradients(scaled)), run(gradients(true)))
    assert (found.name, found.verdict) == ("gradients", verdict)


@pytest.mark.parametrize(("cosine", "verdict"), [(0.91, "changed"), (0.89, "wrong")])
def test_another_direction_is_wrong(cosine: float, verdict: str) -> None:
    true = truth(2000)
    turned = {n: v / np.linalg.norm(v) for n, v in off(true, np.sqrt(1 / cosine**2 - 1)).items()}
    assert judged(run(gradients(off(true, ERROR))), run(gradients(turned)), run(gradients(true))).verdict == verdict


def with_updates(grads: Tensors, updates: Tensors) -> Step:
    """A step with both."""
    return Step(gradients=told(grads), updates=told(updates))


@pytest.mark.parametrize(("signal", "verdict"), [(9.0, "equivalent"), (11.0, "wrong")])
def test_an_update_from_a_gradient_that_is_rounding_says_nothing(signal: float, verdict: str) -> None:
    """The other tensor keeps the step from having nothing to tell."""
    true, moved = truth(2000, 2000), truth(2000, 2000)
    baseline = off(true, ERROR) | {"p1": off(true, 1 / signal)["p1"]}
    turned = moved | {"p1": -moved["p1"]}
    found = judged(run(with_updates(baseline, moved)), run(with_updates(baseline, turned)),
                   run(with_updates(true, moved)))  # fmt: skip
    assert found.verdict == verdict


@pytest.mark.parametrize("rate", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize(("times", "verdict"), [(7.8, "equivalent"), (8.2, "wrong")])
def test_but_it_is_no_larger_than_a_step(times: float, verdict: str, rate: float) -> None:
    true, moved = truth(2000, 2000), {name: rate * step for name, step in truth(2000, 2000).items()}
    baseline = off(true, ERROR) | {"p1": off(true, 1.0)["p1"]}
    jumped = moved | {"p1": -times * moved["p1"]}
    found = judged(run(with_updates(baseline, moved)), run(with_updates(baseline, jumped)),
                   run(with_updates(true, moved)))  # fmt: skip
    assert found.verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(NEAR * 2 * ERROR, "equivalent"), (FAR * 2 * ERROR, "changed")])
def test_an_update_is_no_more_exact_than_its_gradient(error: float, verdict: str) -> None:
    true, moved = truth(2000), truth(2000)
    baseline = run(with_updates(off(true, ERROR), moved))
    candidate = run(with_updates(off(true, ERROR), off(moved, error)))
    assert judged(baseline, candidate, run(with_updates(true, moved))).verdict == verdict


@pytest.mark.parametrize(("times", "verdict"), [(2.7, "equivalent"), (2.9, "changed")])
def test_one_update_may_err_more_than_all_together(times: float, verdict: str) -> None:
    """The root mean square of `times` and 0.5 is 1.94 and 2.08."""
    moved = truth(2000, 2000)
    candidate = {"p0": off(moved, times * ERROR)["p0"], "p1": off(moved, 0.5 * ERROR)["p1"]}
    assert judged_updates(moved, candidate) == verdict


@pytest.mark.parametrize(("size", "elements", "steps", "faint", "verdict"), [
    (400, 4, 3.9, 0.98, "equivalent"), (400, 5, 3.9, 0.98, "changed"), (400, 4, 4.1, 0.98, "changed"),
    (400, 4, 3.9, 1.02, "changed"), (99, 1, 2.0, 0.98, "changed"),
])  # fmt: skip
def test_few_elements_of_an_update_whose_gradient_is_faint_may_be_off_by_a_step(
    size: int, elements: int, steps: float, faint: float, verdict: str
) -> None:
    """Adam divides by gradients near its epsilon: the sign of one that is rounding is a coin."""
    moved, gradient, coins = truth(size), {"p0": np.ones(size)}, np.zeros(size)
    coins[:elements] = steps / np.sqrt(size)
    gradient["p0"][:elements] = faint * 1e-4 * np.sqrt((size - elements) / size)
    rounded = {"p0": np.where(np.arange(size) < elements, 1.002 * gradient["p0"], gradient["p0"])}
    strayed = {"p0": off(moved, ERROR / 10, seed=3)["p0"] + coins}
    runs = [
        with_updates(*each) for each in ((gradient, off(moved, ERROR, seed=2)), (rounded, strayed), (gradient, moved))
    ]
    assert judged(*map(run, runs)).verdict == verdict
    equal = [runs[0], with_updates(gradient, strayed), runs[2]]
    assert judged(*map(run, equal)).verdict in ("changed", "wrong"), "of an equal gradient there is one update"
    elsewhere = [Step(gradients=each.updates, updates={}) for each in runs]
    assert judged(*map(run, elsewhere)).verdict in ("changed", "wrong"), "gradients have no such coins"


def test_beside_a_coin_another_element_that_is_far_off_is_counted_and_no_more() -> None:
    """BERT's first update: one element of 256 at Adam's epsilon, another off by as little as the baseline's is."""
    size = 400
    moved, gradient = truth(size), {"p0": np.ones(size)}
    gradient["p0"][0] = 0.5e-4
    rounded = {"p0": gradient["p0"] * np.where(np.arange(size) == 0, 1.002, 1.0)}
    base = off(moved, ERROR, seed=2)

    def found(by: float) -> str:
        strayed = off(moved, ERROR / 100, seed=3)
        strayed["p0"][:2] += np.array([3.9, by]) / np.sqrt(size)
        runs = [with_updates(*each) for each in ((gradient, base), (rounded, strayed), (gradient, moved))]
        return judged(*map(run, runs)).verdict

    assert found(0.02) == "equivalent" and found(2.0) != "equivalent"


def test_of_a_sketch_of_sums_no_element_is_known_to_be_faint() -> None:
    """The last few elements of a large tensor that are never written stand in few sums."""
    moved = {"p0": np.ones(1024)}
    left = moved["p0"].copy()
    left[-2:] = 0
    runs = [Step(gradients={"p0": sketched(np.zeros(1024))}, updates={"p0": sketched(each)})
            for each in (moved["p0"] * (1 + 1e-7), left, moved["p0"])]  # fmt: skip
    assert judged(*map(run, runs)).verdict in ("changed", "wrong")


def sketched(values: np.ndarray) -> Seen:
    """A tensor of which only 512 sums are kept."""
    sums = np.ascontiguousarray(values.reshape(-1, 512).sum(0))
    whole = seen(values)
    return Seen(whole.shape, whole.dtype, whole.digest, whole.norm, 0, sums.tobytes())


def judged_updates(moved: Tensors, candidate: Tensors) -> str:
    """The verdict on updates of a candidate, beside a baseline that errs by ERROR in each."""
    runs = [Step(updates=told(tensors)) for tensors in (off(moved, ERROR, seed=2), candidate, moved)]
    return judged(*map(run, runs)).verdict


@pytest.mark.parametrize(("times", "cosine", "verdict"), [(1.98, 1.0, "bounded"), (2.02, 1.0, "wrong"),
                                                          (1.0, 0.51, "bounded"), (1.0, 0.49, "wrong")])  # fmt: skip
def test_coins_at_a_lower_precision_are_only_wrong_by_much(times: float, cosine: float, verdict: str) -> None:
    moved = truth(2000)
    turned = {n: times * v / np.linalg.norm(v) for n, v in off(moved, np.sqrt(1 / cosine**2 - 1)).items()}
    runs = [run(Step(updates=told(tensors))) for tensors in (off(moved, 1e-6, seed=2), turned, moved)]
    assert judged(*runs, precision="bfloat16").verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(NEAR * 0.02, "equivalent"), (FAR * 0.02, "changed")])
def test_a_gradient_that_fades_errs_what_it_erred_before(error: float, verdict: str) -> None:
    true = truth(2000)
    faded = {"p0": 1e-3 * true["p0"]}
    moved = {"p0": faded["p0"] + error * off(true, 1.0)["p0"] / np.sqrt(2)}
    baseline = run(gradients(off(true, 0.01)), gradients(off(faded, 0.5)))
    candidate = run(gradients(off(true, 0.01)), gradients(moved))
    assert judged(baseline, candidate, run(gradients(true), gradients(faded))).verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(NEAR * 2 * ERROR, "equivalent"), (FAR * 2 * ERROR, "changed")])
def test_one_lucky_tensor_of_the_baseline_is_no_measure(error: float, verdict: str) -> None:
    true = truth(2000, 2000, 2000)
    lucky = off(true, ERROR) | {"p1": true["p1"]}
    candidate = off(true, ERROR, seed=2) | {"p1": off(true, error)["p1"]}
    assert judged(run(gradients(lucky)), run(gradients(candidate)), run(gradients(true))).verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(NEAR * 2 * ERROR, "equivalent"), (FAR * 2 * ERROR, "changed")])
def test_what_two_plain_runs_differ_by_is_granted(error: float, verdict: str) -> None:
    true = truth(2000)
    again = run(gradients(off(true, ERROR)))
    runs = closeness.Runs(
        run(gradients(true)), run(gradients(off(true, error, 2))), again, run(gradients(true)), None, ""
    )
    (check,) = closeness.checks(runs, {})
    assert check.verdict == verdict


@pytest.mark.parametrize(("times", "verdict"), [(1.95, "equivalent"), (2.05, "changed")])
def test_what_is_nothing_beside_the_others_may_err_a_rounding_of_theirs(times: float, verdict: str) -> None:
    true = truth(2000, 2000)
    true["p1"] *= 1e-9
    rounding = EPS["float32"] * np.sqrt(0.5)
    moved = true | {"p1": times * rounding * truth(2000)["p0"]}
    assert judged(run(gradients(true)), run(gradients(moved)), run(gradients(true))).verdict == verdict


def test_a_program_in_bfloat16_is_granted_no_rounding_of_its_largest_tensors() -> None:
    """What it errs is known from its own run: a small tensor beside large ones was anything at all."""
    true = truth(2000, 2000)
    true["p1"] *= 1e-3

    def of_half(tensors: Tensors) -> Observation:
        found = {name: msgspec.structs.replace(each, dtype="bfloat16") for name, each in told(tensors).items()}
        return run(Step(gradients=found, updates={}))

    ours, exact = off(true, 2e-3), of_half(true)
    assert judged(of_half(ours), of_half(off(true, 2e-3, seed=2)), exact).verdict == "equivalent"
    assert judged(of_half(ours), of_half(ours | {"p1": -true["p1"]}), exact).verdict == "wrong"


def test_counters_are_equal_or_wrong() -> None:
    def counted(value: float) -> Observation:
        one = seen(np.array([value]))
        whole = Seen(one.shape, "int64", one.digest, one.norm, 0, one.sketch)
        return run(Step(updates={}, buffers={"num_batches_tracked": whole}))

    found = judged(counted(3), counted(4), counted(3))
    assert (found.name, found.verdict) == ("buffers", "wrong")


@pytest.mark.parametrize(("flipped", "precision", "verdict"), [
    (15, "bfloat16", "bounded"), (60, "bfloat16", "wrong"), (1, "", "wrong")])  # fmt: skip
def test_choices_of_a_model_may_flip_as_often_as_the_naive_versions_do(
    flipped: int, precision: str, verdict: str
) -> None:
    """The tokens that a language model guesses, 10 of 2,000 other ones where the naive version is lowered."""
    drawn = np.random.default_rng(0)
    guesses = drawn.integers(1000, 2000, 2000).astype(float)

    def guessed(others: int) -> Observation:
        values = guesses.copy()
        values[:others] += 500
        one = seen(values)
        return run(
            Step(calls=(Call("m", True, Data("d"), (msgspec.structs.replace(one, dtype="int64"),)),), updates={})
        )

    naive = guessed(10) if precision else None
    found = judged(guessed(0), guessed(flipped), guessed(0), precision=precision, naive=naive)
    assert found.verdict == verdict, found


def chosen(
    rows: int, others: int = 0, kind: str = "int64", times: float = 1.0, width: int = 1, bad: int = 0,
    beside: np.ndarray | None = None, buffer: bool = False, **more: Tensors,
) -> Observation:  # fmt: skip
    """A step of training (or not) that picks so many rows, some of them other ones than usual."""
    values = (np.arange(rows) + 1.0) * times
    values[:others] += 500
    one = msgspec.structs.replace(seen(values), shape=(rows // width, width), dtype=kind, num_bad=bad)
    given = (one,) if beside is None else (one, seen(beside))
    step = Step(
        calls=() if buffer else (Call("m", True, Data("d"), given),), updates={}, buffers={"b": one} if buffer else {},
        gradients=told(more.get("gradients", {})),
    )  # fmt: skip
    return Observation(steps=(step,), training="gradients" in more)


GRADIENTS = {"gradients": truth(2000)}
BESIDE = np.ones(2000) * 1.5


@pytest.mark.parametrize(("candidate", "precision", "verdict"), [
    (chosen(2000, 60, **GRADIENTS), "bfloat16", "bounded"),
    (chosen(2000, 60, **GRADIENTS), "", "wrong"),
    (chosen(2000, times=0.0, **GRADIENTS), "bfloat16", "wrong"),
    (chosen(1990, **GRADIENTS), "bfloat16", "bounded"),
    (chosen(1990, **GRADIENTS), "", "wrong"),
    (chosen(1850, **GRADIENTS), "bfloat16", "bounded"),
    (chosen(1790, **GRADIENTS), "bfloat16", "wrong"),
    (chosen(1990, times=1.5, **GRADIENTS), "bfloat16", "wrong"),
    (chosen(1990, width=10, **GRADIENTS), "bfloat16", "wrong"),
    (chosen(1990, kind="int32", **GRADIENTS), "bfloat16", "wrong"),
    (chosen(1990, bad=1, **GRADIENTS), "bfloat16", "wrong"),
    (chosen(1990, kind="float32", **GRADIENTS), "bfloat16", "bounded"),
    (chosen(2000, 900, kind="float32", **GRADIENTS), "bfloat16", "changed"),
    (chosen(1990, beside=BESIDE, **GRADIENTS), "bfloat16", "changed"),
    (chosen(1990, beside=np.ones(2000) * 1.09, **GRADIENTS), "bfloat16", "bounded"),
    (chosen(1990, buffer=True, **GRADIENTS), "bfloat16", "wrong"),
    (chosen(1990), "bfloat16", "unverified"),
    (chosen(1990, beside=np.ones(2000)), "bfloat16", "unverified"),
])  # fmt: skip
def test_a_lower_precision_alone_may_pick_others_where_gradients_say_the_rest(
    candidate: Observation, precision: str, verdict: str
) -> None:
    step = candidate.steps[0]
    given = step.calls[0].outputs if step.calls else tuple(step.buffers.values())
    kind = "float32" if given[0].dtype == "float32" else "int64"
    plain = chosen(
        2000, kind=kind, beside=np.ones(2000) if len(given) > 1 else None, buffer=not step.calls,
        **(GRADIENTS if candidate.training else {}),
    )  # fmt: skip
    found = judged(plain, candidate, plain, precision=precision, is_naive=bool(precision))
    assert found.verdict == verdict, found


def test_choices_are_excused_only_of_the_naive_version_itself() -> None:
    """Where a naive run was wanted and failed, nobody knows how often it chooses otherwise."""
    plain, other = chosen(2000, **GRADIENTS), chosen(2000, 60, **GRADIENTS)
    assert judged(plain, other, plain, precision="bfloat16", is_naive=False).verdict == "wrong"


def test_where_float64_picks_another_number_the_baseline_is_what_counts() -> None:
    plain, true = chosen(2000, **GRADIENTS), chosen(2001, **GRADIENTS)
    off_a_little = chosen(2000, gradients=off(GRADIENTS["gradients"], 1e-7))
    assert judged(plain, off_a_little, true).verdict == "equivalent"
    assert judged(plain, chosen(2000, 1, **GRADIENTS), true).verdict == "wrong"
    floats = {"kind": "float32", **GRADIENTS}
    runs = closeness.Runs(chosen(2000, **floats), chosen(2000, **floats), None, chosen(2001, **floats), None, "")
    assert runs.reference is not None, "what else it says still counts"


def test_a_lower_precision_on_its_own_way_is_judged_by_its_losses() -> None:
    true = truth(2000)
    first = gradients(off(true, ERROR))
    later = Step(gradients=told(off(true, 0.3)), updates={}, begun="own")
    lowered = run(gradients(off(true, 0.01)), gradients(off(true, 0.01)))
    found = judged(run(first, first), run(gradients(off(true, 0.01)), later), run(gradients(true), gradients(true)),
                   precision="bfloat16", naive=lowered)  # fmt: skip
    assert found.verdict == "bounded"


def test_a_tensor_that_was_not_seen_is_no_proof() -> None:
    true = truth(2000, 2000)
    less = {"p0": true["p0"]}
    found = judged(run(gradients(true)), run(gradients(less)), run(gradients(true)))
    assert (found.verdict, found.module) == ("unverified", "p1")


def test_what_is_not_finite_is_wrong() -> None:
    true = truth(2000)
    bad = Seen((2000,), "float32", "x", 1.0, 1, seen(true["p0"]).sketch)
    broken = run(Step(gradients={"p0": bad}, updates={}))
    assert judged(run(gradients(off(true, ERROR))), broken, run(gradients(true))).verdict == "wrong"


def test_logits_that_are_masked_alike_are_compared_by_what_is_finite() -> None:
    true = truth(2000)

    def masked(tensors: Tensors, num_bad: int = 3) -> Observation:
        return run(Step(gradients={"p0": msgspec.structs.replace(seen(tensors["p0"]), num_bad=num_bad)}, updates={}))

    plain, exact = masked(off(true, ERROR)), masked(true)
    assert judged(plain, masked(off(true, ERROR)), exact).verdict == "equivalent", "nothing but -inf equals nothing"
    assert judged(plain, masked(off(true, NEAR * 2 * ERROR, seed=2)), exact).verdict == "equivalent"
    assert judged(plain, masked(off(true, FAR * 2 * ERROR, seed=2)), exact).verdict == "changed"
    assert judged(plain, masked(off(true, ERROR), num_bad=4), exact).verdict == "wrong"


def test_a_reference_of_no_finite_norm_is_none() -> None:
    """Logits filled with the least number that there is, in float64."""
    true = truth(2000)
    endless = msgspec.structs.replace(seen(true["p0"]), norm=math.inf)
    reference = run(Step(calls=(Call("m", True, Data("d"), (endless,)),), updates={}))
    assert not closeness.plausible(run(outputs(true)), reference)
    assert closeness.plausible(run(outputs(true)), run(outputs(true)))


def test_the_same_bits_are_exact() -> None:
    true = truth(2000)
    assert judged(run(gradients(true)), run(gradients(true)), run(gradients(off(true, ERROR)))).verdict == "exact"


def test_a_coin_in_one_step_is_no_measure_for_another() -> None:
    """The baseline's update is its own opposite where its gradient is rounding; the next step is held to its own."""
    true, moved = truth(2000), truth(2000)
    turned = {name: -values for name, values in moved.items()}

    def found(error: float) -> Check:
        later = msgspec.structs.replace(with_updates(off(true, ERROR, 2), off(moved, error)), begun="baseline")
        baseline = run(with_updates(off(true, 1 / 9), turned), with_updates(off(true, ERROR), off(moved, ERROR)))
        candidate = run(with_updates(off(true, 1 / 9), moved), later)
        return judged(baseline, candidate, run(with_updates(true, moved), with_updates(true, moved)))

    assert found(NEAR * 2 / 9).verdict == "equivalent"
    beyond = found(FAR * 2 / 9)
    assert (beyond.name, beyond.verdict) == ("updates", "changed")


@pytest.mark.parametrize(("error", "sane"), [(0.0294, 3), (0.0306, 1)])
def test_steps_are_judged_up_to_where_the_baseline_leaves_float64(error: float, sane: int) -> None:
    true, other = outputs(truth(2000)), outputs(off(truth(2000), ERROR))
    gone = outputs(off(truth(2000), error))
    reference = run(true, true, true)
    assert closeness.sane_steps(run(other, gone, other), run(other, other, other), reference) == sane
    assert closeness.sane_steps(run(other, gone, other), run(other, gone, other), reference) == 3, "bit for bit"
    assert closeness.sane_steps(run(other, gone, other), run(other, other, other), None) == 3
    lost = msgspec.structs.replace(other, losses=(math.inf,))
    assert closeness.sane_steps(run(other, lost), run(other, lost), None) == 1
    assert closeness.sane_steps(run(other), run(other, other), reference) == 2


def inside(**tensors: np.ndarray) -> Observation:
    """A call of a model with these outputs of its modules."""
    call = Call("m", True, Data("d"), (), {name: seen(values) for name, values in tensors.items()})
    return run(Step(calls=(call,), updates={}))


def test_the_first_module_that_errs_twice_as_much_is_named() -> None:
    true = truth(2000, 2000)
    plain = off(true, ERROR)

    def first(candidate: Observation, reference: Observation | None = None) -> str:
        reference = reference or inside(**true)
        runs = closeness.Runs(inside(**plain), candidate, None, None, None, "")
        runs.reference = reference
        return closeness.first_to_diverge(runs)

    near, far = off(true, NEAR * 2 * ERROR, 2), off(true, FAR * 2 * ERROR, 2)
    assert first(inside(**near)) == "" and first(inside(**far)) == "p0"
    assert first(inside(p0=near["p0"], p1=far["p1"])) == "p1"
    assert first(inside(p1=far["p1"])) == "p1", "what the candidate does not have is not compared"
    assert first(inside(**far), inside(p1=true["p1"])) == "p1"
    assert first(run(Step())) == first(run()) == ""
    granted = 2 * 16 * EPS["float32"]
    plain = true
    assert first(inside(**off(true, NEAR * granted))) == "" and first(inside(**off(true, FAR * granted))) == "p0"


def test_calls_whose_outputs_were_not_looked_at_have_none() -> None:
    assert closeness.KINDS["outputs"](Step(calls=(Call("m", True, Data("d")),))) == {}


def test_what_is_the_same_and_how_far_apart() -> None:
    one, two = seen(np.array([3.0, 4.0])), seen(np.array([3.0, 0.0]))
    bad = msgspec.structs.replace(one, num_bad=1)
    shaped, half = msgspec.structs.replace(one, shape=(1, 2)), msgspec.structs.replace(one, dtype="bfloat16")
    assert same(one, one) and same(None, None) and one.numel == 2
    assert not any(same(one, other) for other in (two, shaped, half, None)) and not same(None, one)
    assert not same(bad, bad), "a NaN equals nothing"
    assert distance(one, one) == distance(one, half) == 0.0 and distance(one, two) == 4.0
    assert [distance(*pair) for pair in ((one, bad), (bad, one), (one, shaped))] == [math.inf] * 3
    assert closeness.cosine(one, two) == pytest.approx(0.6) and closeness.cosine(one, seen(np.zeros(2))) == 0.0
    assert [closeness.cosine(*pair) for pair in ((one, bad), (bad, one), (one, shaped))] == [0.0] * 3
    assert (scalar(-2.0).norm, scalar(-2.0).num_bad, scalar(math.nan).num_bad) == (2.0, 0, 1)
    assert distance(scalar(1.0), scalar(-2.0)) == 3.0 and distance(scalar(math.inf), scalar(1.0)) == math.inf
    assert msgspec.structs.replace(one, dtype="int64").eps == one.eps == 2.0**-23 and half.eps == 2.0**-7


def test_the_spacing_of_numbers_above_one() -> None:
    kinds = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
    assert {kind: float(np.finfo(of).eps) for kind, of in kinds.items()} == {kind: EPS[kind] for kind in kinds}
    assert EPS["bfloat16"] == 2 * (1 - 0.99609375), "eight bits of a number are kept"


@pytest.mark.parametrize(
    ("dtype", "most"), [("float64", 1e-9), ("float32", 1e-4), ("float16", 1e-2), ("bfloat16", 4e-2)]
)
def test_without_float64_each_dtype_has_a_limit_of_its_own(dtype: str, most: float) -> None:
    true = truth(2000)

    def as_kept(tensors: Tensors) -> Observation:
        kept = {name: msgspec.structs.replace(one, dtype=dtype) for name, one in told(tensors).items()}
        return run(Step(gradients=kept, updates={}))

    def found(error: float) -> Check:
        return judged(as_kept(true), as_kept(off(true, error)), None)

    assert found(NEAR * 2 * most).verdict == "bounded"
    assert found(FAR * 2 * most).verdict in ("changed", "wrong")


def test_what_an_optimizer_keeps_of_rounding_may_be_of_any_size() -> None:
    """Its square grows with it; the update that it makes is no larger than a step, and that is asked of updates."""
    true, kept = truth(2000, 2000), truth(2000, 2000)
    baseline = off(true, ERROR) | {"p1": off(true, 1.0)["p1"]}

    def with_states(grads: Tensors, times: float) -> Observation:
        states = {"AdamW for p0: exp_avg": kept["p0"], "AdamW for p1: exp_avg": times * kept["p1"]}
        return run(Step(gradients=told(grads), updates={}, states=told(states)))

    found = judged(with_states(baseline, 1.0), with_states(baseline, 20.0), with_states(true, 1.0))
    assert found.verdict == "equivalent"
    found = judged(with_states(off(true, ERROR), 1.0), with_states(off(true, ERROR), 20.0), with_states(true, 1.0))
    assert (found.name, found.verdict, found.module) == ("optimizer states", "wrong", "AdamW for p1: exp_avg")
