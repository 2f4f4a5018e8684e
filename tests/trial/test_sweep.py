"""A sweep over arms that follow a law: each value is measured in its turn, and what follows from it is right."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from gobrrr.cli.main import main
from gobrrr.guard.model.gate import Gated
from gobrrr.ledger.model.ledger import MemoryLedger, Roofline
from gobrrr.pipeline.sweeping import Wanted, swept, to_check
from gobrrr.report.forms import formats
from gobrrr.report.forms.json import as_json
from gobrrr.report.html.curve_chart import Axis, CurvePoint, curve
from gobrrr.report.memory.sweep import blocks, headline
from gobrrr.report.text.page import rendered
from gobrrr.rules.verdict.report import Report, Step, Tokens, Verdict
from gobrrr.trial.arm.arm import ArmError
from gobrrr.trial.arm.protocol import Block
from gobrrr.trial.edit.setting import Setting
from gobrrr.trial.race.sweep import Point, Sweep

MIB, MS = 1 << 20, 1_000_000


class FakeArm:
    """An arm whose step takes 4 ms and 0.25 ms per sample, and holds 200 MiB and 2 MiB per sample."""

    def __init__(self, value: str, log: list[str], dies: bool = False) -> None:
        self.applied: dict[str, str] = {}
        self.declined: dict[str, str] = {}
        self.start_seconds, self.peak_bytes = 0.1, 0
        self._number, self._log, self._dies, self._alive = int(value), log, dies, False

    def start(self, seconds: float = 0.0) -> None:
        self._alive = True

    def run(self, steps: int, expected_ns: float | None = None) -> Block:
        if self._dies:
            raise ArmError("the program ended with 1: out of memory")
        if expected_ns is not None:
            self._log.append(str(self._number))
        wall = 4 * MS + self._number * MS // 4
        return Block(steps * wall, (wall,) * steps, peak_bytes=(200 + 2 * self._number) * MIB)

    def end(self) -> None:
        self._alive = False

    def kill(self) -> None:
        self._alive = False

    def alive(self) -> bool:
        return self._alive

    def resident(self) -> int:
        return 0

    held = wanting = resident

    def pause(self) -> None: ...

    resume = pause


def measured(values: tuple[str, ...], tmp_path: Path, dies: str = "") -> tuple[list[Point], list[str]]:
    """The points of a sweep, and whose block came when."""
    log: list[str] = []

    def make(value: str, place: Path) -> Any:
        return FakeArm(value, log, value == dies)

    sweep = Sweep(make, tmp_path, until=time.monotonic() + 60)
    for value in values:
        sweep.first(value)
    for _ in sweep.rounds():
        pass
    sweep.close()
    return [sweep.point(value) for value in values], log


def report() -> Report:
    step = Step(10, 8 * MS, 8 * MS)
    return Report(verdict=Verdict("compute", "x"), step=step)


def wanted(**how: Any) -> Wanted:
    return Wanted(Setting("batch_size", "16", "train.py:1"), **how)


def test_values_are_measured_in_turns_until_they_are_settled(tmp_path: Path) -> None:
    points, log = measured(("8", "16", "32"), tmp_path)
    assert [point.step_ns for point in points] == [6 * MS, 8 * MS, 12 * MS]
    assert [point.peak_bytes for point in points] == [216 * MIB, 232 * MIB, 264 * MIB]
    assert log[:3] == ["8", "16", "32"]  # a first look at each
    rounds = [sorted(log[at : at + 3]) for at in range(3, len(log), 3)]
    assert rounds
    assert all(each == ["16", "32", "8"] for each in rounds)


def test_a_value_is_the_median_of_its_processes(tmp_path: Path) -> None:
    """One process is 20 % slower in all its blocks: its own interval would not show it."""
    made: list[int] = []

    class Uneven(FakeArm):
        def __init__(self, value: str, log: list[str]) -> None:
            super().__init__(value, log)
            made.append(len(made))
            self._factor = 1.2 if len(made) == 1 else 1.0

        def run(self, steps: int, expected_ns: float | None = None) -> Block:
            found = super().run(steps, expected_ns)
            walls = tuple(round(wall * self._factor) for wall in found.walls)
            return Block(sum(walls), walls, peak_bytes=found.peak_bytes)

    sweep = Sweep(lambda value, place: Uneven(value, []), tmp_path, until=time.monotonic() + 60)  # type: ignore[arg-type, return-value]
    assert sweep.first("16").step_ns == pytest.approx(8 * MS * 1.2)
    for _ in sweep.rounds():
        pass
    sweep.close()
    found = sweep.point("16")
    assert (found.step_ns, found.low_ns) == (8 * MS, 8 * MS)
    assert len(made) >= 3


def test_a_value_whose_program_dies_is_told_and_others_go_on(tmp_path: Path) -> None:
    points, _ = measured(("8", "64", "16"), tmp_path, dies="64")
    assert points[1].step_ns is None
    assert "out of memory" in points[1].failed
    assert points[2].step_ns == 8 * MS


def test_the_laws_the_knee_and_the_best(tmp_path: Path) -> None:
    points, _ = measured(("4", "8", "16", "32", "64"), tmp_path)
    found = swept(points, report(), wanted())
    assert found.time_law is not None
    assert found.peak_law is not None
    assert (found.time_law.fixed, found.time_law.each) == pytest.approx((4 * MS, MS / 4))
    assert (found.peak_law.fixed, found.peak_law.each) == pytest.approx((200 * MIB, 2 * MIB))
    assert found.knee == 4  # 5 ms, and 6 ms for 8
    assert found.best == "64"  # 3,200 samples a second; 32 have 2,667
    assert headline(found) == "batch_size 64 serves best: 1.60 times the samples per second of 16."


def test_near_the_best_the_smallest_is_told() -> None:
    points = [Point(str(n), n * 1e5 + 1e3, n * 1e5, n * 1e5, None, 9, None) for n in (16, 32, 64)]
    assert swept(points, report(), wanted()).best == "16"


def test_the_latency_that_was_asked_for_bounds_the_best() -> None:
    points = [Point(str(n), 4e6 + n * 2.5e5, None, None, 4.4e6 + n * 2.75e5, 50, None) for n in (8, 16, 32)]
    found = swept(points, report(), wanted(latency_ns=9e6))
    assert (found.best, found.best_within) == ("32", "16")
    assert headline(found).startswith("batch_size 16 serves best within 9.00 ms")
    nothing = swept(points, report(), wanted(latency_ns=1e6))
    assert "No batch_size keeps 99 %" in headline(nothing)


def test_what_fits_is_told_with_its_interval(tmp_path: Path) -> None:
    points, _ = measured(("4", "8", "16"), tmp_path)
    found = swept(points, report(), wanted(memory=400 * MIB, peaks_alone=True))
    assert found.fit is not None
    assert found.fit.largest == int((400 - 200) / (2 + 0.02 * 232 / 16))
    assert found.fit.now_low == pytest.approx(232 * MIB * 0.98)
    text = rendered(blocks(found))
    assert f"batch_size {found.fit.largest} is the largest that should fit into 400 MiB" in text
    assert "serves best" not in text


def test_where_the_own_batch_does_not_fit_ways_out_are_told(tmp_path: Path) -> None:
    points, _ = measured(("4", "8", "16"), tmp_path)
    memory = MemoryLedger(parameters=50 * MIB, gradients=50 * MIB, optimizer_state=100 * MIB, activations=24 * MIB)
    told = Report(verdict=Verdict("compute", "x"), step=Step(10, 8 * MS, 8 * MS), memory=memory)
    found = swept(points, told, wanted(memory=210 * MIB, values=("4", "8", "16"), peaks_alone=True))
    assert found.fit is not None
    assert dict(found.fit.roles)["activations"] == 96 * MIB  # seen at 4, of 16
    assert {"micro_batch", "optimizer_8bit"} <= {way.name for way in found.fit.ways}


def test_on_a_device_context_and_rounding_are_added(tmp_path: Path) -> None:
    points, _ = measured(("4", "8", "16"), tmp_path)
    found = swept(points, report(), wanted(memory=4096 * MIB, device=True))
    assert found.fit is not None
    assert found.fit.law is not None
    assert found.fit.law.fixed == pytest.approx(200 * MIB * 1.03 + 512 * MIB)
    own = Report(verdict=Verdict("x", "x"), step=Step(10, 8 * MS, 8 * MS), memory=MemoryLedger(runtime=150 * MIB))
    found = swept(points, own, wanted(memory=4096 * MIB, device=True))
    assert found.fit is not None
    assert found.fit.law is not None
    assert found.fit.law.fixed == pytest.approx(50 * MIB * 1.03 + 512 * MIB)  # without what was there before


def test_a_length_that_fits_is_found_by_its_square(tmp_path: Path) -> None:
    setting = Setting("max_length", "1024", "train.py:3")
    points = [Point(str(n), 8e6, peak_bytes=200 * MIB + 1000 * n + 200 * n * n) for n in (128, 256, 512)]
    asked = Wanted(setting, ("128", "256", "512"), is_batch=False, memory=300 * MIB, peaks_alone=True)
    memory = MemoryLedger(parameters=50 * MIB, activations=3 * MIB)
    told = Report(verdict=Verdict("compute", "x"), step=Step(10, 8 * MS, 8 * MS), memory=memory)
    found = swept(points, told, asked)
    assert found.fit is not None
    assert found.fit.largest == pytest.approx(700, rel=0.05)  # of 721: its interval is in it
    assert found.fit.now_low is not None
    assert found.fit.now_low <= 201 * MIB + 200 * 1024**2 <= (found.fit.now_high or 0)
    assert dict(found.fit.roles)["activations"] == pytest.approx(3 * MIB * 210.8e6 / 3.405e6, rel=0.01)  # not 8 times
    assert "micro_batch" not in {way.name for way in found.fit.ways}, "a length is no batch"
    text = rendered(blocks(found))
    assert "200 B per max_length squared" in text
    assert "max_length 6" in text or "max_length 7" in text


def test_a_peak_that_does_not_grow_is_said_so(tmp_path: Path) -> None:
    points = [Point(str(n), 8e6, peak_bytes=500 * MIB) for n in (4, 8, 12)]
    asked = wanted(memory=600 * MIB, peaks_alone=True, values=("4", "8", "12"))
    text = rendered(blocks(swept(points, report(), asked, as_it_is=[Point("12", 8e6, peak_bytes=500 * MIB)])))
    assert "The peak does not grow with batch_size, as far as it was measured." in text
    assert "there was no time" not in text
    assert "freed memory that the C library keeps: there was no time" in rendered(
        blocks(swept(points, report(), asked))
    )
    kept = swept(points, report(), asked, as_it_is=[Point("12", 8e6, peak_bytes=600 * MIB)]).fit
    assert kept is not None
    assert kept.keeps == pytest.approx(0.2)


def unchanged(*peaks: tuple[int, int]) -> list[Point]:
    return [Point(str(number), 8e6, peak_bytes=mib * MIB) for number, mib in peaks]


def test_a_value_that_was_seen_not_to_fit_is_not_told_and_one_that_was_seen_to_is() -> None:
    points = unchanged((4, 208), (8, 216), (12, 224))
    asked = wanted(memory=1000 * MIB, peaks_alone=True, values=("4", "8", "12"))

    def largest(*checked: tuple[int, int]) -> int:
        fit = swept(points, report(), asked, unchanged(*checked)).fit
        assert fit is not None
        assert fit.largest is not None
        return fit.largest

    assert largest((12, 224)) == pytest.approx(337, abs=5)  # 400 by the line, less its interval
    grown = largest((12, 224), (385, 1100))  # the library keeps more of larger blocks
    assert 300 < grown < 350
    assert largest((12, 224), (385, 1100), (330, 960), (330, 980)) == 330
    assert largest((12, 224), (385, 1100), (330, 960), (330, 1001)) < 330
    text = rendered(blocks(swept(points, report(), asked, unchanged((12, 224), (385, 990), (385, 970)))))
    assert "batch_size 385 is the largest that fits into 1000 MiB." in text
    assert "checked: 385 held 990 MiB at most in 2 starts" in text


def test_the_largest_that_fits_is_looked_for_until_it_was_seen_twice() -> None:
    points = unchanged((4, 208), (8, 216), (12, 224))
    asked = wanted(memory=1000 * MIB, peaks_alone=True, values=("4", "8", "12"))
    seen: list[Point] = []
    for value in to_check(points, report(), asked, seen):
        number = int(value)
        seen += unchanged((number, 200 + number * 2 + number**2 // 500))  # grows faster than the line
    last = int(seen[-1].value)
    assert [point.value for point in seen[-2:]] == [str(last)] * 2
    assert len(seen) <= 7
    assert 0.9 * 1000 <= 200 + last * 2 + last**2 // 500 <= 1000


def test_no_double_no_word_of_doubles() -> None:
    odd = [Point(str(n), 8e6, 8e6, 8e6) for n in (8, 12)]
    assert "twice the size" not in rendered(blocks(swept(odd, report(), wanted())))
    doubled = [Point(str(n), 8e6, 8e6, 8e6) for n in (8, 16)]
    assert "twice the size" in rendered(blocks(swept(doubled, report(), wanted())))


def test_another_setting_has_no_law(tmp_path: Path) -> None:
    points = [Point("0", 8e6, 8e6, 8e6), Point("2", 4e6, 4e6, 4e6)]
    found = swept(points, report(), Wanted(Setting("num_workers", "0", "train.py:3"), is_batch=False))
    assert (found.best, found.time_law, found.knee) == ("2", None, None)
    assert headline(found) == "num_workers 2 serves best: 2.00 times the steps per second of 0."


def test_what_takes_less_memory_is_told_with_its_price() -> None:
    figures = (("none", 8e6, 400), ("selective", 9e6, 300), ("0.5", 9.5e6, 310), ("all", 10e6, 200))
    points = [Point(name, ns, ns, ns, None, 9, mib * MIB) for name, ns, mib in figures]
    setting = Setting("checkpointing", "none", "blocks")
    text = rendered(blocks(swept(points, report(), Wanted(setting, is_batch=False))))
    assert "selective: 25.0 % less memory, 1.12 times the step" in text
    assert "all: 50.0 % less memory, 1.25 times the step" in text
    assert "0.5:" not in text  # selective takes less in less time


def test_rates_are_told_in_tokens_flops_and_money(tmp_path: Path) -> None:
    points, _ = measured(("8", "16", "32"), tmp_path)
    told = Report(verdict=Verdict("compute", "x"), step=Step(10, 8 * MS, 8 * MS), tokens=Tokens(1.0, 5, 1e6),
                  roofline=Roofline(flops=16e9, mfu=0.5, ceiling_flop_rate=4e12))  # fmt: skip
    found = swept(points, told, wanted(price_per_hour=3.6))
    by_value = {point.value: point for point in found.points}
    assert found.tokens_per_s(by_value["16"]) == pytest.approx(1e6)  # 8,000 tokens in 8 ms
    assert found.tokens_per_s(by_value["32"]) == pytest.approx(16_000 / 12e-3)
    assert found.mfu(by_value["32"]) == pytest.approx(32e9 / 12e-3 / 4e12)
    assert found.million(by_value["32"]) == pytest.approx(1e6 * 12e-3 / 32 / 3600 * 3.6)
    assert all(word in rendered(blocks(found)) for word in ("tokens/s", "MFU", "1M samples"))


def test_the_page_has_both_curves_and_is_written_from_the_file_again(tmp_path: Path, capsys: Any) -> None:
    points, _ = measured(("8", "16", "32"), tmp_path / "arms")
    file = tmp_path / "sweep.json"
    file.write_bytes(as_json(swept(points, report(), wanted())))
    assert main(["report", str(file), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<polyline") == 2
    assert all(f"<h2>{name}</h2>" in page for name in ("Latency against throughput", "Time against memory"))
    assert ">32 (best)</text>" in page
    assert main(["report", str(file)]) == 0
    assert "serves best" in capsys.readouterr().out


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, 1e-300, 1e300])
def test_a_curve_draws_what_can_be_drawn(value: float) -> None:
    axis = Axis("x", str)
    drawn = curve([CurvePoint("<b>", 1.0, 2.0), CurvePoint("c", value, 1.0), CurvePoint("d", 3.0, 1.0)], axis, axis)
    assert "<b>" not in drawn
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert drawn.count("<circle") in (2, 3)
    assert not curve([CurvePoint("a", 1.0, 2.0)], axis, axis)


def test_a_size_that_was_measured_once_only_may_serve_best() -> None:
    points = [Point(value, ns, ns, ns, None, 9, None, "", blocks) for value, ns, blocks in
              (("16", 10e6, 3), ("64", 25e6, 1))]  # fmt: skip
    assert headline(swept(points, report(), wanted())) == (
        "batch_size 64 may serve best: 1.60 times the samples per second of 16, but it was measured once: give more "
        "--minutes."
    )


def held(change: float, verdict: str, rule: str = "accuracy >= -0.5") -> Gated:
    return Gated(rule=rule, name=rule.split()[0], unit="points", change=change, low=change - 0.1, high=change + 0.1,
                 allowed=-0.5, verdict=verdict, seeds=(0, 1, 2, 3))  # fmt: skip


def test_a_gate_stands_beside_the_speed_and_the_best_is_one_that_it_accepts() -> None:
    """8 is fastest and refused, 12 is accepted; 14 is slower than it and worse; 16 is the program's own."""
    points = [Point(str(n), ms * MS, ms * MS, ms * MS, ms * MS, 9, blocks=3)
              for n, ms in ((8, 5.0), (12, 6.0), (14, 7.0), (16, 9.0), (20, 8.0))]  # fmt: skip
    gated = {"8": (held(-2, "refused"),), "12": (held(-0.1, "accepted"),), "14": (held(-0.2, "undecided"),)}
    found = swept(points, report(), wanted(is_batch=False), (), gated, {"20": "accuracy is nan"})
    assert found.best == "12" and found.unbeaten == ("8", "12", "16")
    text = rendered(blocks(found))
    assert "batch_size 12 serves best within its gates: 1.50 times the steps per second of 16." in text
    rows = {line.split()[0]: line.rstrip() for line in text.splitlines() if line.strip()[:1].isdigit()}
    assert "-2.00 points refused" in rows["8"] and rows["8"].endswith("not beaten")
    assert "batch_size 8: accuracy -2.00 points (-2.10 to -1.90), allowed -0.5: refused" in text
    assert rows["12"].endswith("  best") and rows["16"].endswith("  now") and "measure: 8, 12, 16" in text
    assert "beaten" not in rows["14"] and rows["20"].endswith("accuracy is nan")
    told = json.loads(as_json(found))
    assert told["unbeaten"] == ["8", "12", "16"] and told["gates"]["8"][0]["verdict"] == "refused"
    assert b"not beaten" in formats.render(found, "html", formats.PLAIN)
    refused = swept(points[:1], report(), wanted(is_batch=False), (), gated)
    assert headline(refused) == "No batch_size that was measured is within its gates."
    less = {"8": (held(-2, "accepted", "loss <= 1"),)}
    assert swept([points[0], points[3]], report(), wanted(is_batch=False), (), less).unbeaten == ("8",)


@pytest.mark.parametrize(
    ("words", "said"),
    [("--vary a=1,2 --accept samples", "takes gates alone"), ("--accept loss<=1% --auto", "needs the values"),
     ("--vary a=1,2 --accept loss>=-1%", "less of it is better")],
)  # fmt: skip
def test_what_a_sweep_cannot_hold_is_told(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *words.split(), "train.py"]) == 2
    assert said in capsys.readouterr().err
