"""The headline: cause, place and saving in at most 25 words; doubt before cause, cause before ledger."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Ledger, OpGroup, Roofline, StepStats
from gobrrr.recording.model.facts import Span
from gobrrr.rules import load
from gobrrr.rules.idioms.table import slow_ops
from gobrrr.rules.model.finding import BOUNDS, Saving
from gobrrr.rules.verdict.build import rank_findings
from gobrrr.rules.verdict.sentence import GROUPS, LABELS, ROOFS, judge
from tests.support import report_samples as samples

MS = samples.MS


def ledger(speed_of_light: float | None = 0.4, **accounts: float) -> Ledger:
    """A step of 100 ms with these accounts in ms."""
    return Ledger(
        step=samples.step(100.0),
        accounts=samples.accounts(100.0, **accounts),
        roofline=Roofline(speed_of_light=speed_of_light),
    )


def test_data_wait_is_said_as_people_say_it() -> None:
    verdict = judge(samples.starved_ledger(), [samples.finding()])
    assert verdict.bound == "data"
    assert verdict.sentence == (
        "Data loading: data wait (BRR401) at train.py:41; "
        "waits 41 of each 62.0 ms, a fix would save about 30 ms (12 to 41)."
    )


def test_a_starved_machine_is_the_first_thing_that_is_said() -> None:
    crowd = samples.finding("BRR905", 0.0, name="other-processes", bound="host", severity="warning", message="crowded")
    verdict = judge(samples.starved_ledger(), [samples.finding(), crowd])
    assert verdict.bound == "data" and verdict.sentence == (
        "CPU contention: crowded (BRR905); then data wait (BRR401) at train.py:41."
    )


def test_a_machine_that_is_a_little_crowded_is_not_the_first_thing() -> None:
    crowd = samples.finding("BRR905", 0.0, name="other-processes", bound="host", severity="note", message="crowded")
    assert judge(samples.starved_ledger(), [samples.finding(), crowd]).sentence.startswith("Data loading:")


def test_a_run_that_is_elsewhere_is_told_before_all_else() -> None:
    crowd = samples.finding("BRR905", 0.0, name="other-processes", bound="host", severity="warning", message="crowded")
    other = samples.finding("BRR902", 0.0, name="unsteady", bound="host", severity="critical", message="they differ")
    children = samples.finding("BRR904", 0.0, name="signals", bound="host", severity="critical", message="children")
    ranked = rank_findings([other, crowd, samples.finding(), children], samples.starved_ledger())
    assert ranked[0] is children
    verdict = judge(samples.starved_ledger(), ranked)
    assert verdict.bound == "unreliable" and verdict.sentence.startswith("Unreliable: children")
    mild = replace(children, severity="warning")
    ranked = rank_findings([crowd, samples.finding(), mild], samples.starved_ledger())
    assert judge(samples.starved_ledger(), ranked).sentence.startswith("CPU contention: crowded")


def test_contention_comes_before_what_binds_the_step_and_then_the_cause() -> None:
    crowd = samples.finding("BRR905", 0.0, name="other-processes", bound="host", severity="warning", message="crowded")
    small = samples.finding(expected=13.0, bound="data")
    verdict = judge(ledger(host=40.0, dispatch=15.0), [small, crowd])
    assert verdict.bound == "host" and verdict.sentence == (
        "CPU contention: crowded (BRR905); then host-bound; costliest cause: data wait (BRR401)."
    )
    alone = judge(ledger(inefficiency=70.0), []).sentence.partition(":")[0]
    assert (
        judge(ledger(inefficiency=70.0), [crowd]).sentence == f"CPU contention: crowded (BRR905); then {alone.lower()}."
    )
    assert alone in ("Inefficient ops", "Mostly ops")  # what binds those that lie above their roof is not the roof


@pytest.mark.parametrize(
    ("accounts", "expected", "bound", "said"),
    [
        ({"host": 40.0, "dispatch": 15.0}, 13.0, "data", "host"),
        ({"host": 15.0, "dispatch": 40.0}, 13.0, "data", "overhead"),
        ({"host": 40.0, "dispatch": 15.0}, 19.0, "data", "data"),  # a third of what owns most of the step
        ({"host": 35.0, "dispatch": 10.0}, 13.0, "data", "host"),  # thrice as much needs no majority
        ({"host": 35.0, "dispatch": 10.0}, 16.0, "data", "data"),
        ({"host": 40.0, "dispatch": 15.0}, 13.0, "overhead", "overhead"),  # it lies there
        ({"inefficiency": 55.0}, 13.0, "data", "data"),  # what binds ops is a matter of their own
    ],
)
def test_a_small_finding_elsewhere_does_not_lead_where_python_owns_the_step(
    accounts: dict[str, float], expected: float, bound: str, said: str
) -> None:
    verdict = judge(ledger(**accounts), [samples.finding(expected=expected, bound=bound)])
    assert verdict.bound == said
    assert ("costliest cause: data wait (BRR401), 13 ms" in verdict.sentence) is (said != bound)


def test_a_finding_that_holds_much_is_not_small() -> None:
    held = samples.finding(expected=13.0, bound="data", lies=(("data_wait", 30.0 * MS),))
    assert judge(ledger(host=40.0, dispatch=15.0), [held]).bound == "data"


@pytest.mark.parametrize(("expected", "bound"), [(13.0, "host"), (40.0, "data")])
def test_a_device_that_idles_for_the_host_is_not_bound_by_a_small_wait(expected: float, bound: str) -> None:
    step = replace(ledger(host=40.0, dispatch=15.0), device=DeviceLedger("gpu", 45.0 * MS, 55.0 * MS, 0.5))
    assert judge(step, [samples.finding(expected=expected)]).bound == bound
    compute = samples.finding("BRR101", 13.0, bound="compute")
    assert judge(step, [compute]).bound == "compute", "what the device works is no part of what it idles"


def test_of_two_estimates_that_are_near_the_larger_ceiling_leads() -> None:
    loader = samples.finding("BRR405", 37.0, bound="data", saving=Saving(20 * MS, 37 * MS, 62 * MS))
    attention = samples.finding("BRR105", 38.0, bound="compute", saving=Saving(20 * MS, 38 * MS, 49 * MS))
    assert judge(ledger(data_wait=62.0), [attention, loader]).bound == "data"
    measured = replace(attention, basis="rehearsed")
    assert judge(ledger(data_wait=62.0), [measured, loader]).bound == "compute", "what was measured here is surer"
    far = replace(loader, saving=Saving(20 * MS, 60 * MS, 62 * MS))
    assert judge(ledger(data_wait=62.0), [far, measured]).bound == "data"


def test_a_note_leads_no_report() -> None:
    note = samples.finding("BRR309", 40.0, name="wrong-number-of-threads", bound="overhead", severity="note")
    other = samples.finding("BRR305", 20.0, name="metrics-in-loop", bound="host", severity="critical")
    assert judge(ledger(host=60.0), [note, other]).bound == "host"
    assert "no rule names a cause" in judge(ledger(host=60.0), [note]).sentence


@pytest.mark.parametrize(
    ("code", "bound", "ms", "said"),
    [
        ("BRR408", "data", 13.0, "overhead"),
        ("BRR408", "data", 25.0, "data"),
        ("BRR208", "overhead", 13.0, "overhead"),
        ("BRR306", "host", 13.0, "host"),
    ],
)
def test_a_small_cause_is_not_what_binds_a_step_that_is_mostly_something_else(
    code: str, bound: str, ms: float, said: str
) -> None:
    """60 of 100 ms are dispatch and Python: a third of them is 20."""
    found = samples.finding(code, ms, name="a-cause", bound=bound, lies=())
    verdict = judge(ledger(dispatch=35.0, host=25.0, data_wait=ms), [found])
    assert verdict.bound == said and "a cause (" in verdict.sentence
    assert ("Python and dispatch take 60 of each 100 ms" in verdict.sentence) == (ms < 20 and bound == "data")


def test_what_was_seen_in_plain_steps_stands_beside_what_nobody_could_charge() -> None:
    doubt = samples.finding("BRR908", 0.0, name="unexplained-time", bound="host", severity="critical")

    assert "ops" in load()["BRR302"].needs - load()["BRR306"].needs

    def verdict(code: str, unattributed: float) -> str:
        return judge(ledger(host=100.0 - unattributed), [doubt, samples.finding(code, 30.0, lies=())]).bound

    assert verdict("BRR306", 60.0) == "data", "half as much as what is unknown"
    assert verdict("BRR306", 61.0) == "unreliable"
    assert verdict("BRR302", 60.0) == "unreliable", "of the profiled steps"


def test_another_cause_is_named_with_its_line() -> None:
    found = samples.finding(
        "BRR305", 40.0, name="metrics-in-loop", bound="host", where=(Span("a/b/loop.py", 7, "fit"),)
    )
    verdict = judge(ledger(host=60.0), [found])
    assert verdict.bound == "host"
    assert verdict.sentence == (
        "Host-bound: metrics in loop (BRR305) at loop.py:7; "
        "a fix would save about 40 ms (16 to 55) of each 100 ms step."
    )
    rare = samples.finding("BRR404", 120.0, name="workers-start-every-epoch", lies=())
    slow = replace(ledger(host=60.0), step=samples.step(100.0, mean_ns=230 * MS))
    assert "a fix would save about 120 ms (48 to 160) per average 230 ms step" in judge(slow, [rare]).sentence


def test_a_data_finding_that_is_not_the_wait_is_named() -> None:
    """Padding costs compute, not waiting: the sentence must not speak of a wait that is not there."""
    verdict = judge(ledger(data_wait=1.0), [samples.finding("BRR410", 30.0, name="padding")])
    assert verdict.sentence.startswith("Data loading: padding (BRR410) at train.py:41")


def test_padding_is_work_and_no_wait_however_long_the_loop_waits() -> None:
    verdict = judge(ledger(data_wait=40.0), [samples.finding("BRR409", 30.0, name="padding")])
    assert verdict.sentence.startswith("Works on padding: padding (BRR409) at train.py:41")
    assert verdict.bound == "data" and "waits" not in verdict.sentence


@pytest.mark.parametrize(("expected", "bound"), [(9.9, "host"), (10.0, "data")])
def test_a_finding_decides_from_the_warning_threshold_on(expected: float, bound: str) -> None:
    assert judge(ledger(host=30.0), [samples.finding("BRR401", expected)]).bound == bound


def test_critical_doubt_comes_before_every_cause() -> None:
    verdict = judge(
        samples.starved_ledger(), rank_findings([samples.finding(), samples.doubt()], samples.starved_ledger())
    )
    assert verdict.bound == "unreliable"
    assert verdict.sentence == (
        "Unreliable: the plain steps spread by 48 % around their median while other processes kept 1.7 cores busy "
        "(BRR902)."
    )


def test_a_mild_doubt_leaves_the_verdict_alone() -> None:
    assert judge(samples.starved_ledger(), [samples.finding(), samples.doubt("warning")]).bound == "data"


def test_no_step_is_unreliable() -> None:
    verdict = judge(Ledger(step=StepStats()), [samples.finding()])
    assert verdict.bound == "unreliable"
    assert verdict.sentence.startswith("Unreliable: no step was timed")


def test_balanced_says_how_near_the_machine() -> None:
    verdict = judge(ledger(0.6, inefficiency=35.0, compute=30.0, bandwidth=30.0), [samples.finding("BRR201", 5.0)])
    assert verdict.bound == "balanced"
    assert verdict.sentence == (
        "Balanced: at 60 % of the speed of light; largest loss: 35 of each 100 ms step above the floor."
    )


def test_far_from_the_machine_is_not_balanced() -> None:
    assert judge(ledger(0.09, inefficiency=91.0, compute=9.0), []).bound != "balanced"
    assert judge(ledger(0.1, host=42.0, dispatch=42.0, compute=10.0), []).bound in ("host", "overhead")


def test_without_a_cause_the_account_its_largest_op_and_its_line_are_named() -> None:
    ops = (
        OpGroup("aten::sort", phase="other", where=(Span("a/rank.py", 7, "top"),), ns=50 * MS, floor_ns=5 * MS,
                dispatch_ns=1 * MS, bound="bandwidth"),
        OpGroup("aten::mm", phase="forward", where=(Span("a/net.py", 3),), ns=20 * MS, floor_ns=15 * MS,
                bound="compute"),
    )  # fmt: skip
    book = replace(ledger(0.2, inefficiency=49.0, compute=15.0, bandwidth=5.0, dispatch=1.0), ops=ops)
    verdict = judge(book, [])
    assert verdict.bound == "bandwidth", "what most of the lost time is the traffic of"
    assert verdict.sentence == (
        "Inefficient ops: 49 of each 100 ms step above the floor, most in sort at rank.py:7; "
        "sort orders everything, where topk may do."
    )


def lost(*ops: OpGroup) -> str:
    return judge(replace(ledger(0.2, inefficiency=60.0), ops=ops), []).bound


def test_the_bound_of_lost_time_is_that_of_the_ops_above_their_floors() -> None:
    near = OpGroup("aten::mm", ns=60 * MS, floor_ns=50 * MS, dispatch_ns=1 * MS, bound="compute")
    far = OpGroup("aten::sort", ns=30 * MS, floor_ns=5 * MS, bound="bandwidth")
    assert lost(near, far) == "bandwidth"
    assert lost(near, replace(far, floor_ns=25 * MS)) == "compute"
    tiny = OpGroup("aten::add", ns=30 * MS, dispatch_ns=4 * MS, bound="bandwidth")
    assert lost(near, tiny) == "overhead", "torch's own cost per op rules there"


def test_ops_that_were_held_against_nothing_are_not_called_inefficient() -> None:
    """A trace without the ceilings of its machine: products that may run as fast as it can."""
    product = OpGroup("aten::mm", phase="forward", ns=90 * MS, dispatch_ns=1 * MS)
    verdict = judge(replace(ledger(None, uncounted=89.0, dispatch=1.0, host=10.0), ops=(product,)), [])
    assert verdict.sentence.startswith("Mostly ops: 89 of each 100 ms step without a known floor, most in mm;")


def test_ops_far_above_the_roof_are_not_said_to_be_bound_by_it() -> None:
    found = samples.finding("BRR101", 40.0, name="float64-by-accident", bound="compute", severity="critical")
    near, far = ((("compute", 30 * MS), ("inefficiency", 20 * MS)), (("inefficiency", 30 * MS), ("compute", 20 * MS)))
    book = ledger(inefficiency=50.0)
    assert judge(book, [replace(found, lies=near)]).sentence.startswith("Compute-bound: float64 by accident")
    assert judge(ledger(compute=60.0, inefficiency=30.0), [replace(found, lies=())]).sentence.startswith(
        "Compute-bound"
    )
    assert judge(ledger(inefficiency=60.0), [replace(found, lies=())]).sentence.startswith("Inefficient ops")
    said = judge(book, [replace(found, lies=far)])
    assert said.sentence.startswith("Inefficient ops: float64 by accident") and said.bound == "compute"


@pytest.mark.parametrize("account", sorted(ROOFS))
def test_at_the_roof(account: str) -> None:
    verdict = judge(ledger(0.9, **{account: 70.0}), [])
    assert verdict.bound == account
    assert "at the measured ceiling takes 70 of each 100 ms step; only fewer" in verdict.sentence


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_most_of_the_step_lost_without_a_finding_is_not_called_balanced(group: str) -> None:
    verdict = judge(ledger(**{GROUPS[group][0][0]: 51.0}), [])
    assert verdict.bound == {"ops": "compute"}.get(group, group)
    assert "no rule names a cause" in verdict.sentence


def test_unknown_speed_of_light_is_said() -> None:
    balanced = ledger(None, inefficiency=35.0, compute=30.0, bandwidth=30.0)
    assert judge(balanced, []).sentence.startswith("Balanced: speed of light unknown;")


def test_hostile_names_stay_one_harmless_line() -> None:
    where = (Span("/tmp/\x1b[2Jx\n.py", 3, "f\u202e"),)
    sentence = judge(samples.starved_ledger(), [samples.finding(where=where)]).sentence
    assert sentence.isprintable()


def test_every_bound_has_a_label() -> None:
    assert set(LABELS) == {*BOUNDS, "balanced", "unreliable", "device"}


milliseconds = st.floats(0, 500)


@given(
    wall=st.floats(0, 1000),
    named=st.dictionaries(st.sampled_from(["data_wait", "host", "compute", "gc"]), milliseconds),
    expected=milliseconds, bound=st.sampled_from(BOUNDS), light=st.none() | st.floats(0, 1),
)  # fmt: skip
def test_always_one_sentence_with_a_number(
    wall: float, named: dict[str, float], expected: float, bound: str, light: float | None
) -> None:
    accounts = samples.accounts(wall, **named) if wall else ()
    book = Ledger(step=StepStats(plain_wall_ns=wall * MS), accounts=accounts, roofline=Roofline(speed_of_light=light))
    found = samples.finding(expected=expected, bound=bound, saving=Saving(0.0, expected * MS, expected * MS))
    verdict = judge(book, [found])
    assert verdict.bound in LABELS
    assert re.search(r"\d|no step was timed", verdict.sentence)
    assert verdict.sentence.startswith(f"{LABELS[verdict.bound]}: ")
    assert verdict.sentence.endswith(".")


def test_what_lies_between_the_steps_is_not_called_a_part_of_them() -> None:
    found = replace(samples.finding("BRR312", 20.0), between=True, where=())
    said = judge(ledger(compute=100.0), [found]).sentence
    assert said.startswith("Between steps: ") and said.endswith("about 20 ms (8 to 27) per 100 ms step.")


def test_what_the_verdict_tells_comes_first() -> None:
    """Of two that are near the other may be expected to bring a little more."""
    more = samples.finding("BRR202", 30.0, name="page-faults", bound="overhead")
    told = replace(samples.finding("BRR401", 29.0), saving=Saving(0.0, 29 * MS, 60 * MS))
    third = replace(samples.finding("BRR403", 26.5), saving=Saving(0.0, 26.5 * MS, 62 * MS))
    findings = [third, more, told, samples.doubt()]
    assert [f.code for f in rank_findings(findings, ledger(data_wait=62.0))] == ["BRR902", "BRR401", "BRR202", "BRR403"]
    verdict = judge(ledger(data_wait=62.0), rank_findings(findings[:-1], ledger(data_wait=62.0)))
    assert verdict.bound == "data" and verdict.sentence.startswith("Data loading")


def test_a_cause_of_less_than_a_tenth_is_not_denied() -> None:
    """A stranger's report had a finding about the very op that its verdict called nobody's."""
    small = samples.finding("BRR112", 9.0, name="masks", bound="compute", severity="note")
    said = judge(ledger(host=60.0), [small]).sentence
    assert said.endswith("; largest named: BRR112, 9 ms.")
    assert "no rule names a cause" in judge(ledger(host=60.0), []).sentence


def test_what_is_rare_is_told_of_the_mean_step() -> None:
    """187 ms is the usual step, and workers that start now and then are no part of it."""
    start = replace(samples.finding("BRR404", 25.0, name="workers-start-every-epoch", rare=True))
    steps = ledger(data_wait=62.0)
    steps = replace(steps, step=replace(steps.step, mean_ns=133 * MS))
    said = judge(steps, [start]).sentence
    assert "a fix would save about 25 ms (10 to 34) per average 133 ms step" in said


def test_ends_of_a_saving_keep_two_digits_in_the_unit_of_what_is_expected() -> None:
    found = samples.finding("BRR305", 40.0, name="metrics-in-loop", bound="host")
    for low, high, said in ((0.41, 55.4, "(0.41 to 55)"), (0.001, 1200.0, "(0 to 1200)")):
        saving = Saving(low * MS, 40 * MS, high * MS)
        assert f"about 40 ms {said} of" in judge(ledger(host=60.0), [replace(found, saving=saving)]).sentence


def words(said: str) -> int:
    return len(said.split())


REAL = {code: rule for code, rule in load().items() if not code.startswith("BRR9")}
GPU = DeviceLedger("gpu", 45.0 * MS, 55.0 * MS, 0.5)
WORKING = replace(GPU, busy_ns=80 * MS, kernels=(("void ampere_sgemm_128x64_tn(float*)", 1.0, 20 * MS, "matmul"),))
SORT = OpGroup("aten::_scaled_dot_product_flash_attention_backward", ns=80 * MS, where=(Span("loop.py", 7, "fit"),))


@pytest.mark.parametrize("code", sorted(REAL))
@pytest.mark.parametrize("kind", ["plain", "rare", "between", "no place", "contention", "recording", "longer"])
def test_no_finding_makes_a_headline_of_more_than_25_words(code: str, kind: str) -> None:
    rule = REAL[code]
    found = samples.finding(code, 130.0 if kind == "longer" else 40.6, name=rule.name, bound=rule.bound)
    found = replace(found, rare=kind == "rare", between=kind == "between", severity="critical")
    found = replace(found, where=() if kind == "no place" else found.where)
    lost = {"inefficiency": 50.0, "data_wait": 45.5}
    book = replace(ledger(**lost), signals=frozenset({"unmarked"} if kind == "recording" else ()))
    book = replace(book, step=replace(book.step, mean_ns=133.4 * MS))
    crowd = samples.finding(
        "BRR905", 0.0, severity="warning", message="threads waited for a core 86.6 % of the time: other processes"
    )
    said = judge(book, [found, crowd] if kind == "contention" else [found]).sentence
    assert words(said) <= 25 and code in said and rule.name.replace("-", " ") in said, said
    assert ("train.py:41" in said) is (kind != "no place"), said
    assert bool(re.search("about |~", said)) is (kind != "contention"), said
    assert said.startswith("CPU contention: threads waited for a core 86.6 %") is (kind == "contention")


@pytest.mark.parametrize("small", [0.0, 9.0, 13.0])
@pytest.mark.parametrize("device", [None, GPU, WORKING])
@pytest.mark.parametrize("group", sorted(GROUPS))
@pytest.mark.parametrize("roofs", [0.0, 35.4, 60.0])
def test_no_ledger_makes_a_headline_of_more_than_25_words(
    small: float, device: DeviceLedger | None, group: str, roofs: float
) -> None:
    accounts = {GROUPS[group][0][0]: 99.0 - roofs if roofs < 50 else 30.0, "compute": roofs, "bandwidth": roofs / 2}
    book = replace(ledger(0.6, **accounts), device=device, ops=(SORT,))
    found = samples.finding("BRR503", small, name="would-stall-a-gpu", bound="sync", severity="warning")
    said = judge(book, [found] if small else []).sentence
    assert words(said) <= 25, said
    assert "speed of light" in said or " of each 100 ms" in said or "a fix would save" in said, said


@pytest.mark.parametrize(("expected", "other", "first"), [
    (40.0, "BRR401", "BRR320"), (25.0, "BRR401", "BRR320"), (20.0, "BRR401", "BRR401"), (25.0, "BRR106", "BRR106"),
    (25.0, "BRR102", "BRR320"), (20.0, "BRR102", "BRR102"),
])  # fmt: skip
def test_of_two_that_are_near_the_idiom_is_told(expected: float, other: str, first: str) -> None:
    """Half as near is enough where the other only says which stage of a loader waits, or makes the same line's products
    cheaper."""
    general = replace(samples.finding(other, expected=41.0), saving=Saving(0.0, 41.0 * MS, 90 * MS))
    idiom = replace(samples.finding("BRR320", expected), saving=Saving(0.0, expected * MS, expected * MS))
    assert f"({first})" in judge(ledger(data_wait=60.0), [general, idiom]).sentence


@pytest.mark.parametrize("op", [*slow_ops(), "aten::made_up"])
def test_an_op_that_is_known_to_be_slow_is_told_why(op: str) -> None:
    slow = replace(SORT, name=op)
    said = judge(replace(ledger(0.6, inefficiency=60.0), ops=(slow,)), []).sentence
    assert slow_ops().get(op, "no rule names a cause") in said and words(said) <= 25, said
