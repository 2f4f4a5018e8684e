"""A rehearsal's plan and outcome, from ledgers made by hand: no process, no clock."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import Ledger, StepStats
from gobrrr.recording.model.facts import Facts, OptimizerFacts
from gobrrr.recording.run_folder.run import Start
from gobrrr.rehearsal import autocast, callables, findings
from gobrrr.rehearsal.findings import judged, remedies
from gobrrr.rehearsal.op_parts import chosen, part
from gobrrr.rehearsal.outcome import ALIKE, APART, FAITHFUL, outcome, promised, unlike
from gobrrr.rehearsal.perform import OF_A_FINDING
from gobrrr.rehearsal.scenes import MAKERS, scene
from gobrrr.rehearsal.script import Part, Played, Scene, Script
from gobrrr.remedies import registry
from gobrrr.rules import judge
from gobrrr.rules.model.finding import Finding, Rehearsed, Saving
from tests.support.handmade import LINE, MS, Case, machine, op, product
from tests.support.rule_lines import line

LOW = "c10::BFloat16"
TODAY = {"make": "cast", "elements": 8, "source": "float", "target": LOW}


def a_scene(*ns: float, **fields: Any) -> Scene:
    return Scene("bf16_autocast", tuple(Part(TODAY, TODAY, 1.0, each) for each in ns), **fields)


def rounds(*each: tuple[float, float], count: int = 9) -> Played:
    return Played("bf16_autocast", tuple(tuple(each) for _ in range(count)))


class TestOutcome:
    def test_the_saving_is_the_share_of_the_recorded_time(self) -> None:
        found = outcome(a_scene(40 * MS), rounds((40 * MS, 20 * MS)), 100 * MS)
        assert found is not None and found.saving.expected_ns == pytest.approx(20 * MS)
        assert 0 < found.saving.low_ns < 20 * MS < found.saving.ceiling_ns < 40 * MS

    def test_nothing_brings_more_than_what_the_ops_hold(self) -> None:
        calm, disturbed = ((40 * MS, 20 * MS),), ((400 * MS, 20 * MS),)
        found = outcome(a_scene(40 * MS), Played("bf16_autocast", (calm,) * 5 + (disturbed,) * 4), 100 * MS)
        assert found is not None and found.saving.ceiling_ns == pytest.approx(1.1 * 40 * MS)

    def test_a_loser_saves_nothing_and_says_what_it_costs(self) -> None:
        found = outcome(a_scene(40 * MS), rounds((40 * MS, 50 * MS)), 100 * MS)
        assert found is not None and found.change_ns == pytest.approx(10 * MS)
        assert (found.saving.low_ns, found.saving.expected_ns) == (0, 0)

    def test_what_an_op_takes_more_is_work_that_its_recorded_time_says_nothing_of(self) -> None:
        """The backward of a pooling that copies its images took three times its time, of which a third was its own."""
        found = outcome(a_scene(10 * MS, 20 * MS), rounds((20 * MS, 60 * MS), (20 * MS, 20 * MS)), 100 * MS)
        assert found is not None and found.change_ns == pytest.approx(30 / 40 * 40 * MS)

    def test_what_is_spared_whole_is_all_of_its_recorded_time(self) -> None:
        found = outcome(a_scene(40 * MS, 10 * MS), rounds((40 * MS, 40 * MS), (20 * MS, 0.0)), 100 * MS)
        assert found is not None and found.saving.expected_ns == pytest.approx(10 * MS)

    def test_where_the_stage_is_unlike_the_step_the_interval_holds_both_readings(self) -> None:
        scene = a_scene(40 * MS, 10 * MS)  # the second took a fifth of the first, and here it takes as long
        found = outcome(scene, rounds((20 * MS, 20 * MS), (20 * MS, 2 * MS)), 100 * MS)
        assert found is not None and found.saving.low_ns < 9 * MS and found.saving.ceiling_ns >= 22.5 * MS

    def test_a_machine_that_was_slower_as_a_whole_is_no_other_stage(self) -> None:
        added = Part(None, TODAY, 1.0)
        made = msgspec.structs.replace(a_scene(80 * MS), parts=(*a_scene(80 * MS).parts, added))
        found = outcome(made, rounds((40 * MS, 20 * MS), (0.0, 5 * MS)), 100 * MS)  # the step ran at half the speed
        assert found is not None and found.saving.expected_ns == pytest.approx(30 * MS)

    def test_what_the_remedy_adds_is_taken_off(self) -> None:
        added = Part(None, TODAY, 4.0)
        made = msgspec.structs.replace(a_scene(40 * MS), parts=(*a_scene(40 * MS).parts, added))
        found = outcome(made, rounds((40 * MS, 20 * MS), (0.0, 3 * MS)), 100 * MS)
        assert found is not None and found.saving.expected_ns == pytest.approx(8 * MS)

    def test_what_was_left_out_does_as_the_rest_but_is_not_promised(self) -> None:
        sure = outcome(a_scene(40 * MS), rounds((40 * MS, 20 * MS)), 100 * MS)
        more = outcome(a_scene(40 * MS, left_ns=20 * MS), rounds((40 * MS, 20 * MS)), 100 * MS)
        assert sure is not None and more is not None
        assert more.saving.expected_ns == pytest.approx(30 * MS) and more.saving.low_ns == sure.saving.low_ns

    def test_what_the_profile_took_too_long_is_the_op_that_the_stage_does_not_know_so(self) -> None:
        """Profiled steps of 200 ms, plain ones of 50: one op had fresh pages there (150 ms, 5 without), one never did
        (50 ms). Both were divided by four."""
        faulting, steady = rounds((5 * MS, 5 * MS), (45 * MS, 15 * MS)), (37.5 * MS, 12.5 * MS)
        alike = outcome(a_scene(*steady), faulting, 50 * MS)
        told = outcome(a_scene(*steady, scaled_by=0.25), faulting, 50 * MS)
        assert alike is not None and alike.saving.expected_ns == pytest.approx(12.5 * 2 / 3 * MS)
        assert told is not None and told.saving.expected_ns == pytest.approx(45 * 2 / 3 * MS)
        assert told.saving.low_ns == alike.saving.low_ns and told.saving.ceiling_ns > 30 * MS

    def test_nothing_is_longer_than_it_was_in_the_profile(self) -> None:
        busy = rounds((90 * MS, 45 * MS))  # others kept the cores
        found = outcome(a_scene(40 * MS, scaled_by=0.8), busy, 100 * MS)
        assert found is not None and found.saving.expected_ns == pytest.approx(25 * MS)

    def test_an_updates_time_is_known_from_plain_steps(self) -> None:
        update = Part({"make": "optimizer"}, {"make": "optimizer"}, 1.0, 10 * MS)
        made = Scene("fused_optimizer", (update,), scaled_by=0.25)
        found = outcome(made, rounds((20 * MS, 10 * MS)), 100 * MS)
        assert found is not None and found.saving.expected_ns == pytest.approx(5 * MS)

    def test_of_two_readings_of_an_update_the_stage_says_which(self) -> None:
        update = Part({"make": "optimizer"}, {"make": "optimizer"}, 1.0, 10 * MS, most_ns=18 * MS)
        for stage, expected in ((16, 8), (40, 9), (5, 5)):
            found = outcome(Scene("fused_optimizer", (update,)), rounds((stage * MS, stage / 2 * MS)), 100 * MS)
            assert found is not None and found.saving.expected_ns == pytest.approx(expected * MS)
            assert found.saving.low_ns < 5 * MS and found.saving.ceiling_ns > 9 * MS

    def test_noise_widens_it(self) -> None:
        noisy = Played("bf16_autocast", tuple(((40 * MS, each * MS),) for each in (10, 15, 20, 20, 25, 30, 38)))
        calm, wide = (outcome(a_scene(40 * MS), each, 100 * MS) for each in (rounds((40 * MS, 20 * MS)), noisy))
        assert calm is not None and wide is not None and wide.saving.low_ns < calm.saving.low_ns

    def test_nothing_played_is_nothing_known(self) -> None:
        assert outcome(a_scene(MS), Played("bf16_autocast", why="the time was up"), 100 * MS) is None
        assert outcome(a_scene(MS), rounds((1.0, 1.0), (1.0, 1.0)), 100 * MS) is None

    def test_parts_that_did_not_fit_do_as_those_that_did(self) -> None:
        found = outcome(a_scene(40 * MS, 20 * MS), rounds((40 * MS, 20 * MS)), 100 * MS)
        assert found is not None and found.saving.expected_ns == pytest.approx(30 * MS)
        assert found.today_ns == 40 * MS

    def test_what_it_may_spare_and_cost_outside_widens_it(self) -> None:
        played = rounds((40 * MS, 20 * MS))
        plain, worse, better = (
            outcome(a_scene(40 * MS, **more), played, 100 * MS)
            for more in ({}, {"worse_ns": 3 * MS}, {"better_ns": 5 * MS})
        )
        assert plain is not None and worse is not None and better is not None
        assert plain.saving.low_ns - worse.saving.low_ns == pytest.approx(3 * MS)
        assert better.saving.ceiling_ns - plain.saving.ceiling_ns == pytest.approx(5 * MS)
        assert plain.saving.low_ns == pytest.approx((20 - FAITHFUL * 20 - ALIKE * 40) * MS)
        assert plain.saving.ceiling_ns == pytest.approx((20 + FAITHFUL * 20 + ALIKE * 40) * MS)

    @pytest.mark.parametrize(
        ("times", "low", "known"),
        [(1.0, True, True), (2.5, True, True), (0.4, True, True), (4.0, False, True), (0.25, False, True),
         (11.0, False, False), (0.09, False, False), (2000.0, False, False)],
    )  # fmt: skip
    def test_a_stage_far_from_the_step_promises_nothing(self, times: float, low: bool, known: bool) -> None:
        scene, played = a_scene(40 * MS), rounds((times * 40 * MS, times * 4 * MS))
        found = outcome(scene, played, 100 * MS)
        assert (found is not None) == known == (not unlike(scene, played))
        assert found is None or (found.saving.low_ns > 0) == low
        if times > 1000:
            assert unlike(scene, played) == "its ops ran 2000 times slower than in the step"


class TestPromised:
    """To what the ops save comes what two processes are apart: 2.5 of these 100 ms."""

    def of(self, change: float, low: float, ceiling: float, today: float = 50.0) -> Saving:
        own = Saving(low * MS, max(0.0, change) * MS, ceiling * MS)
        return promised(Rehearsed("a", own, -change * MS, today * MS), 100 * MS)

    @pytest.mark.parametrize(
        ("ops", "told"),
        [((1.0, 1.0, 1.0), (0.0, 1.0, 3.5)), ((20.0, 14.0, 26.0), (13.5, 20.0, 26.5)),
         ((3.0, 1.0, 5.0), (0.0, 3.0, 6.2)), ((0.0, 0.0, 0.0), (0.0, 0.0, 2.5)), ((-0.5, 0.0, 0.0), (0.0, 0.0, 2.05)),
         ((-38.0, 0.0, 0.0), (0.0, 0.0, 0.08))],
    )  # fmt: skip
    def test_it_is_added_as_what_is_independent(
        self, ops: tuple[float, float, float], told: tuple[float, float, float]
    ) -> None:
        found = self.of(*ops)
        assert (found.low_ns / MS, found.expected_ns / MS, found.ceiling_ns / MS) == pytest.approx(told, abs=0.01)

    def test_no_more_than_the_ops_hold_unless_the_rehearsal_said_so(self) -> None:
        assert self.of(1.0, 1.0, 1.0, today=2.0).ceiling_ns == pytest.approx(2.2 * MS)
        assert self.of(1.0, 1.0, 2.9, today=2.0).ceiling_ns == pytest.approx(2.9 * MS)
        assert self.of(99.0, 90.0, 100.0, today=99.0).ceiling_ns == pytest.approx(100 * MS), "nor than the step"

    def test_the_low_is_never_above_what_the_ops_say(self) -> None:
        """Of two readings the one that says less may be nothing."""
        assert self.of(30.0, 0.0, 40.0).low_ns == 0
        assert APART == 0.025


def finding(*names: str, cost_bytes: int | None = None, ceiling: float = 30 * MS) -> Finding:
    saving = Saving(5 * MS, 20 * MS, ceiling)
    return Finding("BRR102", "x", "compute", "critical", saving, "m", remedies=names, cost_bytes=cost_bytes)


def known(**expected: float) -> dict[str, Rehearsed]:
    return {
        name: Rehearsed(name, Saving(0.0, max(0.0, ns), max(0.0, 1.2 * ns)), -ns, 50 * MS)
        for name, ns in expected.items()
    }


class TestFindings:
    ledger: Ledger = Case(ms=100.0).ledger

    def test_a_finding_takes_its_best_remedys_saving(self) -> None:
        kept, dropped = judged([finding("a", "b")], known(a=12 * MS, b=30 * MS), self.ledger)
        assert kept[0].saving.expected_ns == 30 * MS and kept[0].basis == "rehearsed" and not dropped
        assert [r.remedy for r in kept[0].rehearsed] == ["a", "b"]
        assert kept[0].saving.ceiling_ns == pytest.approx((30 + math.hypot(6, 2.5)) * MS), (
            "with what processes are apart"
        )

    def test_a_loser_is_not_recommended(self) -> None:
        """And what is advised is what wins: the rule's own advice is that of its first remedy."""
        names = ("bf16_autocast", "matmul_precision")
        kept, _ = judged([finding(*names)], known(bf16_autocast=-12 * MS, matmul_precision=30 * MS), self.ledger)
        assert kept[0].remedies == names[1:]
        lost = "bf16_autocast would cost 12.0 ms per step, as rehearsed here."
        assert kept[0].advice == f'torch.set_float32_matmul_precision("medium"); {lost}'
        kept, _ = judged([finding(*names)], known(bf16_autocast=12 * MS, matmul_precision=30 * MS), self.ledger)
        assert kept[0].advice == finding(*names).advice

    def test_where_all_lose_it_is_no_finding_and_said_why(self) -> None:
        kept, dropped = judged([finding("a")], known(a=-18 * MS), self.ledger)
        assert not kept and dropped == [("BRR102", "rehearsed here: a would cost 18.0 ms per step")]

    def test_what_was_not_rehearsed_stays_estimated_and_promises_nothing(self) -> None:
        names = ("compile", "bf16_autocast")
        kept, _ = judged([finding(*names)], known(compile=-MS), self.ledger)
        assert kept[0].advice == (
            "bf16_autocast computes matrix products in bfloat16 (twice as fast or more where the chip has units for "
            "it); compile would cost 1.00 ms per step, as rehearsed here."
        )
        assert kept[0].remedies == names[1:] and kept[0].basis == "estimated"
        assert kept[0].saving == Saving(0.0, 0.0, 30 * MS) and kept[0].severity == "note", "20 ms were the first one's"
        kept, _ = judged([finding("a", "b")], known(b=-MS), self.ledger)
        assert kept[0].saving.expected_ns == 20 * MS and kept[0].severity == "critical", "the first may help yet"

    def test_a_first_that_lost_leaves_what_was_measured_of_the_others(self) -> None:
        names = ("bf16_autocast", "float32", "matmul_precision")
        (found,), _ = judged(
            [finding(*names)], known(bf16_autocast=-MS, matmul_precision=6 * MS), self.ledger, ("float32",)
        )
        assert found.basis == "rehearsed" and found.saving.expected_ns == pytest.approx(6 * MS)

    @pytest.mark.parametrize(("remedy", "expected"), [
        ("channels_last", 12), ("bf16_autocast", 12), ("float16_autocast", 12), ("matmul_precision", 12),
        ("float32", 12), ("fused_optimizer", 30),
    ])  # fmt: skip
    def test_on_a_device_shorter_kernels_bring_what_the_host_lets_them(self, remedy: str, expected: float) -> None:
        """What spares launches as well is taken as it was timed."""
        device = DeviceLedger("gpu", 80 * MS, 20 * MS, 0.8, lighter=((10 * MS, 9 * MS), (50 * MS, 15 * MS)))
        ledger = Case(ms=100.0, extra={"device": device}).ledger
        sure = {remedy: Rehearsed(remedy, Saving(20 * MS, 30 * MS, 36 * MS), -30 * MS, 50 * MS)}
        kept, _ = judged([finding(remedy)], sure, ledger)
        assert kept[0].saving.expected_ns == pytest.approx(expected * MS) and kept[0].basis == "rehearsed"
        assert kept[0].saving.low_ns <= kept[0].saving.expected_ns <= kept[0].saving.ceiling_ns
        assert kept[0].severity == ("critical" if expected == 30 else "warning")

    def test_on_a_device_the_best_remedy_is_the_one_that_makes_the_step_shortest(self) -> None:
        """Not the one that makes its kernels shortest, of which a host that is late anyway has little."""
        device = DeviceLedger("gpu", 80 * MS, 20 * MS, 0.8, lighter=((10 * MS, 9 * MS), (50 * MS, 15 * MS)))
        ledger = Case(ms=100.0, extra={"device": device}).ledger
        names = ("bf16_autocast", "fused_optimizer")
        kept, _ = judged([finding(*names)], known(**dict(zip(names, (30 * MS, 25 * MS), strict=True))), ledger)
        assert kept[0].saving.expected_ns == pytest.approx(25 * MS)
        (found,), _ = judged([finding("a", "bf16_autocast")], known(bf16_autocast=30 * MS), ledger, ("a",))
        assert found.basis == "estimated" and found.saving.expected_ns == 20 * MS, "12 are no measure of the first"

    @pytest.mark.parametrize(
        ("expected", "failed", "basis"), [(3, ("a",), "estimated"), (3, (), "rehearsed"), (25, ("a",), "rehearsed"),
                                          (3, ("c",), "rehearsed")]
    )  # fmt: skip
    def test_the_next_best_is_no_measure_of_a_first_that_could_not_be_played(
        self, expected: float, failed: tuple[str, ...], basis: str
    ) -> None:
        (found,), _ = judged([finding("a", "b", "c")], known(b=expected * MS), self.ledger, failed)
        assert found.basis == basis and found.remedies == ("a", "b", "c") and found.rehearsed
        assert found.saving.expected_ns == pytest.approx((20 if basis == "estimated" else expected) * MS)
        assert found.saving.low_ns == 0, "what was played showed no more"

    def test_bytes_stay_a_finding(self) -> None:
        assert judged([finding("a", cost_bytes=1 << 30)], known(a=-MS), self.ledger)[0]

    def test_findings_that_nobody_rehearsed_stay_as_they_are(self) -> None:
        assert judged([finding("c")], known(a=-MS), self.ledger) == ([finding("c")], [])

    def test_a_winner_is_expected_to_win(self) -> None:
        """Within its interval a loser may win as well."""
        unsure = Rehearsed("a", Saving(0.0, 0.0, 9 * MS), MS, 50 * MS)
        assert judged([finding("a")], {"a": unsure}, self.ledger)[0] == []

    def test_a_winner_of_next_to_nothing_is_no_finding(self) -> None:
        kept, dropped = judged([finding("a")], known(a=0.001 * MS), self.ledger)
        assert not kept and [code for code, _ in dropped] == ["BRR102"]

    def test_why_a_rehearsal_failed_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        scenes = {name: msgspec.structs.replace(a_scene(40 * MS), remedy=name) for name in ("a", "b", "c")}
        results = {
            "a": Played("a", why="it would take 9 MB, and 1 MB are free"), "b": Played("b", why="no kernel"),
            "c": msgspec.structs.replace(rounds((40 * MS, 20 * MS)), remedy="c"),
        }  # fmt: skip
        monkeypatch.setattr(findings, "remedies", lambda names: dict.fromkeys(scenes, 1.0))
        monkeypatch.setattr(findings, "scene", lambda name, *rest: scenes[name])
        monkeypatch.setattr(findings, "perform", lambda script, interpreter: results)
        start = Start(pid=1, torch="2.13.0")
        play = findings.Rehearsal(self.ledger, machine(), start, "python")
        kept, skipped = play([finding("a"), finding("b", "c")])
        assert [f.basis for f in kept] == ["estimated", "rehearsed"]
        assert ("BRR102", "a could not be rehearsed: it would take 9 MB, and 1 MB are free") in skipped

    def test_what_is_to_be_played_also_is_and_who_loses_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        scripts = []

        def perform(script: Script, interpreter: str) -> dict[str, Played]:
            scripts.append(script)
            return {
                s.remedy: msgspec.structs.replace(rounds((40 * MS, 60 * MS)), remedy=s.remedy) for s in script.scenes
            }

        monkeypatch.setattr(
            findings, "scene", lambda name, *rest: msgspec.structs.replace(a_scene(40 * MS), remedy=name)
        )
        monkeypatch.setattr(findings, "perform", perform)
        play = findings.Rehearsal(
            self.ledger, machine(), Start(pid=1, torch="2.13.0"), "python", 99.0,
            also=("bf16_autocast", "fused_optimizer", "compile"),
        )  # fmt: skip
        assert play([]) == ([], [])
        (script,) = scripts
        assert [s.remedy for s in script.scenes] == ["bf16_autocast", "fused_optimizer"], "compile has no scene"
        assert script.seconds == 10.0 + 2 * 3.0
        assert [r.remedy for r in play.outcomes] == ["bf16_autocast", "fused_optimizer"]
        assert all(r.change_ns > 0 and r.saving.expected_ns == 0 for r in play.outcomes)

    @pytest.mark.parametrize(("gflops", "is_played"), [(2.0, False), (11.0, True)])
    def test_a_format_that_a_cpu_computes_ten_times_slower_is_known_to_lose(
        self, monkeypatch: pytest.MonkeyPatch, gflops: float, is_played: bool
    ) -> None:
        """One of its products outlasted a rehearsal: nothing was known, and minutes of a race were lost to it."""
        ledger = Case(ops=(product(512, 512, 512),), ms=100.0).ledger
        seen: list[str] = []

        def perform(script: Script, interpreter: str) -> dict[str, Played]:
            seen.extend(each.remedy for each in script.scenes)
            return {name: Played(name, why="no time") for name in seen}

        monkeypatch.setattr(findings, "perform", perform)
        start = Start(pid=1, torch="2.13.0")
        play = findings.Rehearsal(ledger, machine(bf16=gflops), start, "python", also=("bf16_autocast",))
        assert play([]) == ([], [])
        assert bool(seen) is is_played
        (op,) = ledger.ops
        lost = [Rehearsed("bf16_autocast", Saving(0.0, 0.0, 0.0), pytest.approx(49 * op.ns), pytest.approx(op.ns))]
        assert list(play.outcomes) == ([] if is_played else lost)


class TestJudge:
    """What looks at all findings sees the savings that were rehearsed."""

    ledger: Ledger = Case(ops=(product(512, 512, 512),), ms=100.0).ledger

    def test_a_rehearsed_saving_above_its_account_is_doubted(self) -> None:
        found, _ = judge(self.ledger, machine(), rehearsed=lambda _: ([finding("a", ceiling=999 * MS)], []))
        assert [f.code for f in found] == ["BRR102"]
        more = msgspec.structs.replace(finding("a"), saving=Saving(0.0, 300 * MS, 300 * MS))
        found, _ = judge(self.ledger, machine(), rehearsed=lambda _: ([more], []))
        assert {f.code for f in found} == {"BRR102", "BRR910"}

    def test_a_rehearsal_that_raises_costs_itself_alone(self) -> None:
        def broken(_: list[Finding]) -> Any:
            raise ValueError("strides")

        plain, told = judge(self.ledger, machine())
        found, skipped = judge(self.ledger, machine(), rehearsed=broken)
        assert found == plain and skipped == [*told, ("rehearsal", skipped[-1][1])]
        assert "ValueError: a defect of gobrrr" in skipped[-1][1]
        with pytest.raises(ValueError, match="strides"):
            judge(self.ledger, machine(), strict=True, rehearsed=broken)


class TestScenes:
    def test_strides_that_are_missing_are_dense(self) -> None:
        image = msgspec.structs.replace(op("mkldnn_convolution", (1, 8, 4, 4), (8, 8, 3, 3)), strides=())
        found = scene("channels_last", Case(ops=(image,)).ledger, machine(), 3.0)
        assert found is not None and found.worse_ns >= sum(each.ns for each in found.parts) > 0
        assert found is not None and found.parts[0].then is not None
        assert found.parts[0].then["strides"] == [[128, 1, 32, 8], [72, 1, 24, 8]]

    def test_what_is_flattened_comes_back_in_rows(self) -> None:
        """Its gradient is no image with the channels last, and flattening such an image copies it."""
        image, pooled = (8, 4, 6, 6), (8, 4, 3, 3)
        convolution = op("mkldnn_convolution", image, (4, 4, 3, 3), ms=9)
        pool = op("max_pool2d_with_indices_backward", pooled, image, phase="backward", ms=9)
        for flattens in (False, True):
            ops = (convolution, op("view", pooled, ms=0.01) if flattens else op("relu", pooled, ms=0.01), pool)
            found = scene("channels_last", Case(ops=ops).ledger, machine(), 3.0)
            assert found is not None
            played = {each.then["name"]: each.then["strides"] for each in found.parts if each.then is not None}
            rows, images = [36, 9, 3, 1], [36, 1, 12, 4]
            assert played["aten::max_pool2d_with_indices_backward"] == [rows if flattens else images, [144, 1, 24, 4]]
            assert ("aten::copy_" in played) == flattens

    def test_autocast_leaves_products_that_are_given_their_output(self) -> None:
        plain = op("mm", (64, 32), (32, 128), ms=9)
        given = op("mm", (64, 32), (32, 256), (64, 256), ms=9)
        found = scene("bf16_autocast", Case(ops=(plain, given)).ledger, machine(), 3.0)
        assert found is not None
        assert [part.today["shapes"] for part in found.parts if part.today] == [[[64, 32], [32, 128]]]
        assert scene("bf16_autocast", Case(ops=(given,)).ledger, machine(), 3.0) is None

    def test_under_autocast_a_norm_keeps_its_weights_in_float32(self) -> None:
        image, name = (8, 4, 6, 6), "native_batch_norm"
        ops = (op("cudnn_convolution", image, (4, 4, 3, 3), ms=9), op(name, image, (4,), (4,), (4,), (4,), ms=9))
        found = scene("bf16_autocast", Case(ops=ops).ledger, machine(), 3.0)
        assert found is not None
        (norm,) = [each.then for each in found.parts if each.then and each.then.get("name") == f"aten::{name}"]
        assert norm["dtypes"] == [LOW, *["float"] * 4]

    def test_what_cudnn_refuses_in_bfloat16_is_torchs_own_batch_norm(self) -> None:
        """As it was recorded on an H200; played here on the CPU, whose own takes both formats as well."""
        torch = pytest.importorskip("torch")
        image, weight = (8, 4, 6, 6), (4,)
        norm = op("cudnn_batch_norm", image, *[weight] * 4, (), (), (), ms=9,
                  dtypes=("float",) * 5 + ("Scalar",) * 3,
                  concrete=("",) * 5 + ("True", "0.10000000000000001", "1.0000000000000001e-05"))  # fmt: skip
        backward = op("cudnn_batch_norm_backward", image, image, *[weight] * 5, (), (0,), ms=9, phase="backward",
                      dtypes=("float",) * 7 + ("Scalar", "unsigned char"),
                      concrete=("",) * 7 + ("1.0000000000000001e-05", ""))  # fmt: skip
        ops = (op("cudnn_convolution", image, (4, 4, 3, 3), ms=9), norm, backward)
        parts, _ = autocast.parts(Case(ops=ops).ledger, LOW)
        played = {part.then["name"]: part.then for part in parts if part.today and part.then}
        assert {"aten::native_batch_norm", "aten::native_batch_norm_backward"} < set(played)
        for name in ("aten::native_batch_norm", "aten::native_batch_norm_backward"):
            first, *others = callables.make(torch, played[name], "cpu")()
            assert first.shape == image and first.dtype == torch.bfloat16
            assert all(each.dtype == torch.float32 for each in others)
        halves, _ = autocast.parts(Case(ops=ops).ledger, "c10::Half")
        assert "aten::cudnn_batch_norm" in {part.then["name"] for part in halves if part.then and "name" in part.then}

    def test_torchs_own_batch_norm_takes_its_inputs_in_another_order(self) -> None:
        """The gradient before the image; what follows stays."""
        given = op("cudnn_batch_norm_backward", *[(n,) for n in range(1, 8)], (), (0,),
                   dtypes=(*"abcdefg", "Scalar", "unsigned char"), concrete=("",) * 7 + ("1e-5", ""))  # fmt: skip
        found = autocast._run_in(given, "c10::BFloat16")
        order = [2, 1, 3, 4, 5, 6, 7]
        assert found.shapes == (*((n,) for n in order), (), (), ())
        assert found.dtypes == (*("abcdefg"[n - 1] for n in order), "", "", "")
        assert len(found.strides) == 10 and found.concrete[7:] == ("True", "1e-5", "[True, True, True]")

    def test_an_op_is_called_with_what_its_forward_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch = pytest.importorskip("torch")
        told: list[str] = []

        def kept(_: Any, name: str, inputs: list[Any]) -> list[Any]:
            told.append(name)
            return [torch.ones(2, 3), torch.ones(3, 4)]

        monkeypatch.setattr(callables, "_with_what_forward_kept", kept)
        played = part(op("mm", (64, 32), (32, 128)), dtypes=["float", "float"]).then
        assert played is not None
        found = callables.make(torch, played, "cpu")()
        assert told == ["aten::mm"] and torch.equal(found, torch.full((2, 4), 3.0))

    def test_a_batch_norms_backward_is_given_what_cudnn_keeps_of_its_forward(self) -> None:
        """The size of it is the library's own: with the recorded one it would read beyond its memory, or refuse."""
        torch = pytest.importorskip("torch")
        made = ("output", "mean", "deviation", "reserve")

        class Ops:
            @staticmethod
            def cudnn_batch_norm(*inputs: object) -> tuple[str, ...]:
                assert inputs == ("images", "weight", "weight", None, None, True, 0.1, 1e-5)
                return made

        fake = type("Torch", (), {"ops": type("_", (), {"aten": Ops}), "no_grad": torch.no_grad})
        recorded = ["images", "gradient", "weight", "rm", "rv", "sm", "sv", 1e-5, "empty"]
        name = "aten::cudnn_batch_norm_backward"
        assert callables._with_what_forward_kept(fake, name, recorded) == [*recorded[:5], *made[1:3], 1e-5, made[3]]
        assert callables._with_what_forward_kept(fake, "aten::native_batch_norm_backward", recorded) == recorded

    def test_a_lower_precision_of_products_is_played_on_attention_too(self) -> None:
        """Its kernel multiplies by the same setting: a step grew by half, no product had changed."""
        heads = ((2, 4, 64, 16),) * 3
        fused = op("_scaled_dot_product_flash_attention_for_cpu", *heads, (), (), ms=9)
        found = scene("matmul_precision", Case(ops=(product(64, 64, 64), fused)).ledger, machine(), 3.0)
        assert found is not None and found.parts[0].then is not None
        assert (found.parts[0].then["name"], found.parts[0].then["precision"]) == (fused.name, "medium")

    def test_a_mask_is_drawn_with_the_chance_that_was_recorded(self) -> None:
        drawn = op("bernoulli_", (4096, 256), (), (), ms=9, concrete=("", "0.80000000000000004", ""))
        found = scene("packed_masks", Case(ops=(drawn,)).ledger, machine(), 3.0)
        assert found is not None and found.parts[0].today is not None and found.parts[0].then is not None
        assert found.parts[0].today["keep"] == found.parts[0].then["keep"] == 0.8

    def test_a_scene_knows_what_its_ops_were_multiplied_by(self) -> None:
        ledger = msgspec.structs.replace(Case(ops=(product(64, 64, 64),)).ledger, scaled_by=0.5)
        found = scene("bf16_autocast", ledger, machine(), 3.0)
        assert found is not None and (found.scaled_by, found.left_ns) == (0.5, 0.0)

    def test_as_many_threads_as_cores_need_no_rehearsal(self) -> None:
        ledger = Case(ops=(product(64, 64, 64),)).ledger
        same, more = (msgspec.structs.replace(machine(), usable_cores=ledger.threads + count) for count in (0, 1))
        assert scene("intraop_threads", ledger, same, 3.0) is None
        found = scene("intraop_threads", ledger, more, 3.0)
        assert found is not None and found.parts[0].then["threads"] == ledger.threads + 1  # type: ignore[index]

    def test_a_fused_optimizer_is_not_rehearsed_once_more(self) -> None:
        facts = OptimizerFacts(1, "AdamW", supports_fused=True, fused=True, num_tensors=1, num_elements=64,
                               shapes=(((8, 8), 1),))  # fmt: skip
        case = Case(facts=Facts(optimizers=(facts,)), phases=(("optimizer", 20 * MS),))
        assert scene("fused_optimizer", case.ledger, machine(), 3.0) is None

    def test_every_remedy_that_is_rehearsed_exists(self) -> None:
        assert set(MAKERS) <= {*registry.names(), *registry.edit_names()}

    def test_a_finding_has_three_seconds_whatever_its_remedies(self) -> None:
        found = remedies([("bf16_autocast", "compile", "matmul_precision"), ("bf16_autocast", "chunked_loss")])
        assert found == {"bf16_autocast": 1.5, "matmul_precision": 1.5, "chunked_loss": OF_A_FINDING}

    def test_an_update_is_played_over_the_real_list_of_shapes(self) -> None:
        shapes = (((256, 64), 3), ((64,), 5))
        facts = OptimizerFacts(1, "AdamW", supports_fused=True, num_tensors=8, num_elements=49472, shapes=shapes,
                               options={"lr": 1e-3})  # fmt: skip
        case = Case(facts=Facts(optimizers=(facts,)), phases=(("optimizer", 20 * MS),))
        found = scene("fused_optimizer", case.ledger, machine(), 3.0)
        assert found is not None and found.parts[0].ns == 20 * MS
        assert found.parts[0].then["tensors"] == [[[256, 64], 3], [[64], 5]]  # type: ignore[index]
        case.extra["lines"] = (line(8.0, LINE, phase="optimizer"), line(50.0, LINE))
        sampled = scene("fused_optimizer", case.ledger, machine(), 3.0)
        assert sampled is not None and sampled.parts[0].ns == 8 * MS, "plain steps had no more there than that"
        assert sampled.parts[0].most_ns == 20 * MS == found.parts[0].most_ns
        case.facts = Facts(optimizers=(msgspec.structs.replace(facts, num_tensors=9),))
        assert scene("fused_optimizer", case.ledger, machine(), 3.0) is None, "one shape is not known"

    def test_float32_takes_the_update_with_it(self) -> None:
        facts = OptimizerFacts(1, "AdamW", num_tensors=1, num_elements=64, param_bytes=512, shapes=(((8, 8), 1),))
        case = Case(facts=Facts(optimizers=(facts,)), phases=(("optimizer", 20 * MS),))
        found = scene("float32", case.ledger, machine(), 3.0)
        assert found is not None and found.parts[0].ns == 20 * MS
        assert [side["torch_dtype"] for side in (found.parts[0].today, found.parts[0].then) if side] == [
            "float64", "float32",
        ]  # fmt: skip

    def test_what_a_remedy_adds_comes_first_then_the_costliest(self) -> None:
        parts = [part(op("mul", (64, rows), ms=ms)) for rows, ms in ((8, 100.0), (16, 200.0), (32, 1.0))]
        picked, left = chosen([*parts, Part(None, TODAY, 4.0)])
        assert [p.ns for p in picked] == [0, 200 * MS, 100 * MS] and left == 1 * MS

    def test_batches_of_like_length_are_one_part(self) -> None:
        """Each of five recorded lengths had ops of its own, and those that lose were left out."""
        lengths = [part(op("bmm", (8, n, 48), (8, 48, n), ms=n / 10, calls=1.0)) for n in (93, 92, 88, 83)]
        transposed = msgspec.structs.replace(
            op("bmm", (8, 93, 48), (8, 48, 93), ms=6.0), strides=((4464, 1, 93), (4464, 1, 48))
        )
        others = [part(op("bmm", (8, 60, 48), (8, 48, 60), ms=6.0)), part(op("bmm", (9, 88, 48), (9, 48, 88), ms=6.0)),
                  part(transposed), part(op("bmm", (8, 93, 48), (8, 48, 93), ms=6.0), precision="medium")]  # fmt: skip
        adds = [
            Part(None, {"make": "cast", "elements": n, "source": "float", "target": LOW}, 2.0) for n in (1000, 900, 500)
        ]
        picked, left = chosen([*adds, *lengths, *others])
        assert [p.calls for p in picked if not p.ns] == [pytest.approx(2.0 + 2.0 * 0.9), 2.0]
        assert len(picked) == 2 + 1 + len(others) and left == 0
        (one,) = chosen(lengths)[0]
        assert one.ns == sum(p.ns for p in lengths) and one.calls == pytest.approx((93 + 92 + 88 + 83) / 93)

    def test_attentions_of_other_dimensions_are_parts_of_their_own(self) -> None:
        """One of four beside one of three ended the whole rehearsal."""
        made = {"make": "attention", "dtype": "float", "torch_dtype": "float32", "mask": False, "dropout": 0.0}
        sizes = (([2, 4, 128, 128, 32], 1.0), ([8, 128, 128, 32], 1.0), ([8, 120, 120, 32], 0.0))
        parts = [Part({**made, "dims": n, "fused": False}, {**made, "dims": n, "fused": True}, c, MS) for n, c in sizes]
        assert [p.calls for p in chosen(parts)[0]] == [1.0, pytest.approx(1.0)]

    def test_layers_of_one_shape_are_one_part(self) -> None:
        layers = [
            part(op("mul", (64, 64), ms=10.0, where=(msgspec.structs.replace(LINE, line=n),), calls=2.0))
            for n in range(40)
        ]
        picked, left = chosen([*layers, part(op("mul", (64, 32), ms=10.0))])
        assert [(p.calls, p.ns) for p in picked] == [(80.0, 400 * MS)] and left == 10 * MS


class TestAutocast:
    def lowered(self, *ops: Any) -> tuple[list[str], list[tuple[int, str, str]]]:
        parts, _ = autocast.parts(Case(ops=ops).ledger, LOW)
        named = [p.then["name"] for p in parts if p.then and p.then["make"] == "op"]
        casts = [(p.then["elements"], p.then["source"], p.then["target"]) for p in parts if p.then and not p.today]
        return named, casts

    def test_products_are_lowered_with_casts_of_input_and_weight(self) -> None:
        named, casts = self.lowered(product(32, 64, 16))
        assert named == ["aten::mm"] and casts == [(2048, "float", LOW), (1024, "float", LOW)]

    def test_a_weight_is_cast_though_a_tensor_of_its_size_is_lowered_already(self) -> None:
        _, casts = self.lowered(product(32, 64, 16), product(32, 16, 32))
        assert casts.count((512, "float", LOW)) == 1, "the second weight; its input, of as many elements, is lowered"

    def test_what_follows_a_product_is_lowered_and_needs_no_cast(self) -> None:
        named, casts = self.lowered(product(32, 64, 16), op("gelu", (32, 16)), product(32, 16, 8))
        assert named == ["aten::mm", "aten::gelu", "aten::mm"]
        assert (512, "float", LOW) not in casts

    def test_an_attentions_sums_of_exponentials_stay_in_float_on_the_way_back(self) -> None:
        """Its kernel refuses them in a lower format, and with it the whole rehearsal failed."""
        heads, sums = ((2, 4, 64, 16),) * 5, (2, 4, 64)
        name = "_scaled_dot_product_flash_attention_for_cpu_backward"
        backward = op(name, *heads, sums, (), (), phase="backward", dtypes=("float",) * 6 + ("Scalar",) * 2)
        parts, _ = autocast.parts(Case(ops=(product(32, 64, 16), backward)).ledger, LOW)
        (then,) = [p.then for p in parts if p.then and p.then.get("name") == backward.name]
        assert then["dtypes"] == [LOW] * 5 + ["float"] + ["Scalar"] * 2

    def test_a_residual_keeps_its_sum_in_float(self) -> None:
        ops = (op("native_layer_norm", (32, 64)), product(32, 64, 64), op("add", (32, 64), (32, 64)))
        named, casts = self.lowered(*ops)
        assert named == ["aten::mm"] and casts.count((2048, LOW, "float")) == 1, "what is added to it is cast"

    @pytest.mark.parametrize("weights", [True, False])
    def test_means_and_deviations_of_a_norm_stay_in_float_beside_weights_in_float(self, weights: bool) -> None:
        """torch refuses them otherwise, and the rehearsal of a GPT failed with them. Called as it would be, too."""
        torch = pytest.importorskip("torch")
        weight = ((64,), (64,)) if weights else ((), ())
        name, given = "native_layer_norm_backward", ((8, 4, 64), (8, 4, 64), (), (8, 4, 1), (8, 4, 1), *weight, ())
        kinds = tuple("float" if shape else "" for shape in given)
        norm = op("native_layer_norm", (8, 4, 64), (), *weight, (), dtypes=("float", "", *kinds[5:7], ""))
        backward = op(
            name,
            *given,
            phase="backward",
            dtypes=kinds,
            concrete=("", "", "[64]", "", "", "", "", f"[True, {weights}, {weights}]"),
        )
        parts, _ = autocast.parts(Case(ops=(product(32, 32, 64), norm, backward)).ledger, LOW)
        (then,) = [p.then for p in parts if p.then and p.then.get("name") == f"aten::{name}"]
        assert then["dtypes"][3:5] == (["float"] * 2 if weights else [LOW] * 2)
        assert callables.make(torch, then, "cpu")()[0].dtype == torch.bfloat16

    def test_sdpa_without_a_kernel_multiplies_in_float(self) -> None:
        """As torch computes it on a CPU where weights are dropped out: a BERT was promised 23 % and got 5."""
        parents = ("aten::scaled_dot_product_attention", autocast.MATH, "aten::matmul")
        scores, values = ((2, 16, 8), (2, 8, 16)), ((2, 16, 16), (2, 16, 8))
        forward = [op("bmm", *scores, parents=parents), op("_softmax", (1, 2, 16, 16), parents=parents),
                   op("bmm", *values, parents=parents)]  # fmt: skip
        backward = [op(name, *shapes, phase="backward") for name, shapes in
                    (("bmm", values), ("bmm", scores), ("_softmax_backward_data", ((1, 2, 16, 16),)))]  # fmt: skip
        named, casts = self.lowered(product(32, 20, 8), *forward, op("gelu", (1, 2, 16, 8)), *backward)
        assert named == ["aten::mm", "aten::gelu"], "what follows it is lowered again"
        assert casts.count((256, LOW, "float")) == casts.count((256, "float", LOW)) == 2, "and back on the way back"
        assert (512, "float", LOW) in casts and (512, LOW, "float") not in casts, "its weights, which nobody uses"
        parts, unsure = autocast.parts(Case(ops=(product(32, 20, 8), *forward)).ledger, LOW)
        assert unsure == 0 and {p.calls for p in parts if p.then and p.then.get("elements") == 256} >= {3.0}
        by_hand = [op("bmm", *scores), op("_softmax", (1, 2, 16, 16)), op("bmm", *values)]
        assert self.lowered(*by_hand, *backward)[0].count("aten::bmm") == 4

    @pytest.mark.parametrize(("spread", "layers", "new"), [(1, 1, True), (1, 4, False), (0, 1, False)])
    def test_products_of_ever_new_shapes_pay_for_their_kernels(self, spread: int, layers: int, new: bool) -> None:
        """Experts that are given other tokens in each of eight steps; not layers that all have the batch's length."""
        steps = 8
        ops = [op("mm", (64 + n * spread, 32), (32, 16), calls=layers / steps, ms=1 + n) for n in range(40)]
        step = StepStats(count=60, plain_count=50, profiled_count=steps, kind="training")
        parts, _ = autocast.parts(Case(ops=tuple(ops), step=step).ledger, LOW)
        medium = scene("matmul_precision", Case(ops=tuple(ops), step=step).ledger, machine(), 3.0)
        made, others = (
            [p for p in each if p.then and p.then["make"] == "fresh"]
            for each in (parts, medium.parts if medium else ())
        )
        assert [p.then and p.then["precision"] for p in others] == ["medium"] * new
        assert [(p.calls, p.then and p.then["dims"], p.today) for p in made] == (
            [(5.0, [103, 32, 16], None)] if new else []
        )

    def test_losses_stay_in_float_and_their_logits_are_cast(self) -> None:
        named, casts = self.lowered(product(32, 64, 100), op("_log_softmax", (32, 100)))
        assert named == ["aten::mm"] and (3200, LOW, "float") in casts

    def test_a_program_that_trains_casts_gradients_back(self) -> None:
        _, casts = self.lowered(product(32, 64, 16), product(64, 32, 16, phase="backward"))
        assert (2048, LOW, "float") in casts and (1024, LOW, "float") in casts
