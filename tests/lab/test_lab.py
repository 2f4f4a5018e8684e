"""The lab: every experiment says what would refute it, and what it measures is judged by that alone."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gobrrr_lab.experiments
from gobrrr.cli.main import main
from gobrrr.errors import GobrrrError
from gobrrr_lab import chosen, load
from gobrrr_lab.measure import runner
from gobrrr_lab.measure.bench import Bench, ratio
from gobrrr_lab.measure.experiment import CHAPTERS, NEEDS, Experiment
from gobrrr_lab.measure.needs import lacking
from gobrrr_lab.measure.result import Figure, Found, Result, Row, cpu_of
from gobrrr_lab.measure.stage import measured
from gobrrr_lab.measure.verdict import CANNOT, INCONCLUSIVE, INVERTED, NOT_HERE, REPRODUCED, VERDICTS, judged
from gobrrr_lab.show.chart import curve
from gobrrr_lab.show.page import as_markdown, beside, written
from gobrrr_lab.show.text import figure_text, told, value
from tests.planted.catalogue import CATALOGUE
from tests.support.handmade import machine

EXPERIMENTS = load()
FOLDER = Path(gobrrr_lab.experiments.__file__).parent
MOST_LINES = 120


def made(**fields: Any) -> Experiment:
    given = {
        "number": 1, "chapter": "time", "title": "t", "claim": "c", "source": "s", "published": "2x", "factor": "f",
        "reproduced": (1.5, 3.0), "why": "w", "measure": lambda bench: Found(Figure(2, 1.9, 2.1)), **fields,
    }  # fmt: skip
    return Experiment(**given)


class Clock:
    """Each reading is later by what the call between took."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def takes(self, ns: Callable[[], int]) -> Callable[[], None]:
        def call() -> None:
            self.now += ns()

        return call


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_says_everything_before_it_is_measured(name: str) -> None:
    one = EXPERIMENTS[name]
    assert one.chapter in CHAPTERS and set(one.needs) <= set(NEEDS) and 0 < one.seconds < 60
    assert all(text.strip() for text in (one.title, one.claim, one.source, one.published, one.factor, one.why))
    assert one.reproduced[0] < one.reproduced[1]
    (file,) = FOLDER.glob(f"*/{name}.py")
    assert len(file.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize(("name", "one"), [(name, one) for name, one in EXPERIMENTS.items() if one.finding])
def test_the_illness_of_an_experiment_is_a_planted_one_with_its_code(name: str, one: Experiment) -> None:
    """tests/planted runs it under `gobrrr run`, and asks for that code at the marked line."""
    program, code = one.finding or ("", "")
    assert [ill.codes[0] for ill in CATALOGUE if ill.name == program] == [code], name


def test_numbers_are_their_own() -> None:
    numbers = [one.number for one in EXPERIMENTS.values()]
    assert len(set(numbers)) == len(numbers) and numbers == sorted(numbers)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_experiment_holds_whatever_comes_out(name: str) -> None:
    one = EXPERIMENTS[name]
    low, high = one.reproduced
    inside = (
        math.sqrt(low * high) if 0 < low and math.isfinite(high) else low + 1 if math.isinf(high) else (low + high) / 2
    )
    outside = [low - abs(low) / 2 - 1e-9] * math.isfinite(low) + [high * 2 + 1e-9] * math.isfinite(high)
    assert judged(one, Figure.exact(inside)) == REPRODUCED
    assert outside and all(judged(one, Figure.exact(f)) in (NOT_HERE, INVERTED) for f in outside)
    if one.inverts:
        assert judged(one, Figure.exact(0.9 if low >= 1 else 1.1)) == INVERTED


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure(2.0, 1.6, 2.9), REPRODUCED), (Figure(2.0, 1.5, 3.0), REPRODUCED), (Figure(2.0, 1.4, 2.9), INCONCLUSIVE),
        (Figure(1.2, 1.1, 1.4), NOT_HERE), (Figure(4.0, 3.1, 5.0), NOT_HERE), (Figure(0.8, 0.7, 0.9), INVERTED),
        (Figure(1.0, 0.9, 1.1), NOT_HERE), (Figure(math.nan, 1.6, 2.0), INCONCLUSIVE),
        (Figure(2.0, 2.1, 1.9), INCONCLUSIVE),
    ],
)  # fmt: skip
def test_a_claim_that_something_is_faster(figure: Figure, verdict: str) -> None:
    assert judged(made(), figure) == verdict


def test_a_claim_that_something_is_slower_and_one_of_no_side() -> None:
    assert judged(made(reproduced=(0.1, 0.9)), Figure(1.2, 1.1, 1.3)) == INVERTED
    assert judged(made(reproduced=(0.9, 1.1)), Figure(0.5, 0.4, 0.6)) == NOT_HERE
    assert judged(made(reproduced=(0.0, 1e-6), unit=""), Figure.exact(2.0)) == NOT_HERE


def test_a_pair_gives_the_ratio_of_its_times_and_a_time_its_median() -> None:
    clock = Clock()
    bench = Bench(machine(), 0.5, clock=clock)
    found = bench.pair(clock.takes(lambda: 3_000_000), clock.takes(lambda: 1_000_000))
    assert found.value == pytest.approx(3.0) and found.low == pytest.approx(3.0) == found.high
    times = itertools.cycle((900_000, 1_000_000, 1_100_000))
    clock.now += 1
    spread = Bench(machine(), 0.5, clock=clock).time(clock.takes(lambda: next(times)))
    assert spread.low <= spread.value <= spread.high and spread.value == pytest.approx(1e6, rel=0.11)


def test_a_ratio_of_two_times_is_less_sure_than_either() -> None:
    found = ratio(Figure(4.0, 3.6, 4.4), Figure(2.0, 1.9, 2.1))
    assert found.value == pytest.approx(2.0) and found.low < 2 * 0.9 and found.high > 2 * 1.1


@pytest.mark.parametrize(
    ("isa", "said"),
    [
        (("avx2", "fma", "f16c"), "EPYC (avx2)"),
        (("avx2", "fma", "f16c", "avx512f", "avx512_bf16"), "EPYC (avx512_bf16)"),
        ((), "EPYC"),
    ],
)
def test_processors_of_one_name_are_told_apart_by_what_they_multiply_with(isa: tuple[str, ...], said: str) -> None:
    assert cpu_of(msgspec.structs.replace(machine(), cpu="EPYC", isa=isa)) == said


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if {"compiler", "gloo"} & set(one.needs) else [])
        for name, one in EXPERIMENTS.items()
    ],
)
def test_every_experiment_runs_to_its_end_on_tiny_sizes(name: str) -> None:
    one = EXPERIMENTS[name]
    if missing := lacking(one):
        pytest.skip(missing)
    result = measured(name, one, Bench(machine(), 0.02, tiny=True))
    if result.verdict == CANNOT:
        pytest.skip(result.why_not)
    assert result.found is not None and result.verdict in VERDICTS
    assert all(math.isfinite(each) for each in msgspec.structs.astuple(result.found.factor))
    assert told(result, one) and as_markdown([result])
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result


def test_each_receipt_is_kept_and_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"here": made(needs=()), "far": made(number=2, needs=("device",))}
    monkeypatch.setattr(runner, "_one", lambda name, one, *rest: Result(name, one.number, REPRODUCED, cpu="CPU"))
    monkeypatch.setattr("gobrrr_lab.measure.needs._DEVICES", ())
    results = list(runner.run(known, machine(), folder=tmp_path / "lab"))
    assert [result.verdict for result in results] == [REPRODUCED, CANNOT] and "accelerator" in results[1].why_not
    assert [result.name for result in runner.kept(tmp_path)] == ["here"]
    (tmp_path / "lab" / "other.json").write_text('{"not": "a receipt"}')
    (tmp_path / "lab" / "broken.json").write_bytes(b"\xff{")
    (tmp_path / "lab" / "text.json").write_bytes(b'[{"name": "\xff\xfe", "number": 1, "verdict": "reproduced"}]')
    (tmp_path / "lab" / "deep.json").write_bytes(b"[" * 100_000)
    assert len(runner.kept(tmp_path)) == 1 == len(runner.kept(tmp_path / "lab" / "here.json"))
    assert not runner.kept(tmp_path / "lab" / "gone.json")


def test_none_is_begun_when_the_time_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clock = itertools.count(0.0, 40.0)
    monkeypatch.setattr("gobrrr_lab.measure.runner.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(runner, "_one", lambda name, one, *rest: Result(name, one.number, REPRODUCED, cpu="CPU"))
    monkeypatch.setattr("gobrrr.machine.measure.store.load_or_measure", lambda **_: machine())
    assert main(["lab", "waves", "low_rank", "strassen", "--minutes", "1"]) == 0
    told = capsys.readouterr()
    assert "1 reproduced" in told.out and "before the last 2" in told.err


def test_a_stage_that_is_told_to_end_clears_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_in = tmp_path / "stage.py"
    made_in.write_text(
        "import signal, sys, tempfile, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}, prefix='left-'):\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, str(made_in)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "begun\n" and list(tmp_path.glob("left-*"))
    runner._end(child)
    assert child.returncode == 143 and not list(tmp_path.glob("left-*"))
    child.stdout.close()


def test_one_that_ends_badly_is_told_and_the_next_goes_on(tmp_path: Path) -> None:
    (result,) = runner.run({"no_such_experiment": made(needs=())}, machine(), 0.1, folder=tmp_path)
    assert result.verdict == INCONCLUSIVE and "no_such_experiment" in result.why_not


def test_a_missing_ninja_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "ninja" else f"/usr/bin/{name}")
    assert "ninja" in lacking(made(needs=("compiler", "ninja"))) and not lacking(made(needs=("compiler",)))


def test_no_code_of_the_users_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("msgspec", "numpy", "torch", "gobrrr"):
        (tmp_path / f"{name}.py").write_text("open('run', 'w').close(); raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    (result,) = runner.run({"waves": EXPERIMENTS["waves"]}, machine(), 0.1, tiny=True)
    assert result.verdict == REPRODUCED and not (tmp_path / "run").exists()


@pytest.mark.parametrize("output", ["x.pdf", "x", "no/such/folder/x.md", "."])
def test_where_results_cannot_go_is_said_before_anything_is_measured(
    output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run", lambda *_, **__: pytest.fail("measured"))
    assert main(["lab", "waves", "-o", output]) == 2
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ends", "code"), [(KeyboardInterrupt(), 130), (GobrrrError("no room", "make some"), 2), (None, 0)]
)
def test_what_was_measured_is_told_and_written_however_it_ends(
    ends: BaseException | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def measuring(*_: object, **__: object) -> Iterator[Result]:
        yield Result("waves", 15, REPRODUCED, found=Found(Figure.exact(1.65)), cpu="CPU")
        if ends is not None:
            raise ends

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run", measuring)
    monkeypatch.setattr("gobrrr.machine.measure.store.load_or_measure", lambda **_: machine())
    assert main(["lab", "waves", "-o", "x.json"]) == code
    assert "1 reproduced" in capsys.readouterr().out and runner.kept(tmp_path)[0].name == "waves"


def test_words_are_names_numbers_and_chapters() -> None:
    name, one = next(iter(EXPERIMENTS.items()))
    assert list(chosen([name])) == [name] == list(chosen([str(one.number)]))
    assert name in chosen([one.chapter])
    with pytest.raises(GobrrrError, match="there is no experiment or chapter 'nonsense'"):
        chosen(["nonsense"])


def test_results_are_written_as_their_suffix_says(tmp_path: Path) -> None:
    name, one = "batched_matmul", EXPERIMENTS["batched_matmul"]
    rows = tuple(Row(f"{n}", Figure(n, 0.9 * n, 1.1 * n), n, x=n, unit="FLOP/s") for n in (1e9, 2e9, 4e9))
    result = Result(name, one.number, REPRODUCED, found=Found(Figure(2, 1.9, 2.1), 2.0, rows), cpu="CPU <b>", torch="2")
    html = written([result], "x.html").decode()
    assert "CPU <b>" not in html and "CPU &lt;b&gt;" in html and one.title.split()[0] in html
    assert msgspec.json.decode(written([result], "x.json"), type=list[Result]) == [result]
    assert "| reproduced |" in written([result], "x.md").decode()
    hostile = Row("l", Figure.exact(1.0), 1.0, unit="<script>x</script>\x1b[2J")
    page = written([msgspec.structs.replace(result, found=Found(Figure.exact(2.0), None, (hostile,)))], "x.md").decode()
    assert "<script>" not in page and "\x1b" not in page
    others = (msgspec.structs.replace(result, verdict=NOT_HERE, **one) for one in ({"cpu": "Other"}, {"cores": 64}))
    assert beside([result, *others]).count("2x (1.9x to 2.1x)") == 3
    with pytest.raises(GobrrrError, match="no form of the lab"):
        written([result], "x.pdf")


def test_each_series_is_a_curve_of_its_own() -> None:
    rows = [
        Row(f"{name} {x}", Figure.exact(x * height), x * height, x=x, unit="ns", series=name)
        for name, height in (("ring", 1.0), ("<i>", 10.0))
        for x in (1.0, 10.0, 100.0)
    ]
    drawn = str(curve(rows, "numbers"))
    assert drawn.count("<circle") == 6 and drawn.count('class="roof"') == 4  # no line from one curve to the other
    assert ">ring<" in drawn and "<i>" not in drawn and "&lt;i&gt;" in drawn
    fills = [each.split('"')[0] for each in drawn.split("<circle")[1:] for each in each.split('class="')[1:2]]
    assert fills[:3] == fills[:1] * 3 != fills[3:]
    for bad in (Figure(1, 1, -1), Figure(-1, 1, 1), Figure(1, 1, math.inf), Figure.exact(1.0)):
        odd = [Row("odd", bad, -1.0 if bad.high == 1.0 else None, x=x, unit="ns") for x in (1, 2, 3)]
        assert not curve(odd, "numbers")
    close = [
        Row(f"{n}", Figure.exact(1.0 + n / 1e3), x=x, unit="ns", series=f"s{n}") for n in range(4) for x in (1, 2, 3)
    ]
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="start">s\d', str(curve(close, "numbers")))]
    assert len(heights) == 4 and all(
        b - a >= 17 for a, b in itertools.pairwise(sorted(heights))
    )  # no name over another
    assert not curve(rows[:2], "numbers") and not curve(rows, "") and not curve([], "numbers")


def test_values_are_in_their_units() -> None:
    assert value(2e6, "ns") == "2.00 ms" and value(3e9, "FLOP/s") == "3.00 GFLOP/s" and value(12.5, "%") == "12.5 %"
    assert figure_text(Figure.exact(2.0), "x") == "2x" and figure_text(Figure(2, 1, 3), "x") == "2x (1x to 3x)"


def test_the_list_needs_no_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["lab"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in EXPERIMENTS) and f"{len(EXPERIMENTS)} experiments" in shown
