"""The text report: goldens as people see it, and that no string of a program can do anything but be read."""

from __future__ import annotations

import io
import os
import pty
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from gobrrr.ledger.model.device import DeviceOp
from gobrrr.ledger.model.ledger import Account, OpGroup, OtherLoop
from gobrrr.recording.model.facts import Span
from gobrrr.report.text.page import WIDTH
from gobrrr.report.text.report import brief, render, show
from gobrrr.report.told.resources import ACCOUNTS
from gobrrr.rules import load
from gobrrr.rules.verdict.build import build
from gobrrr.rules.verdict.report import Device, Report
from gobrrr.rules.verdict.report import Span as Busy
from gobrrr.rules.verdict.sentence import is_doubt
from tests.support import report_samples as samples
from tests.support.shown import as_comment

GOLDEN = Path(__file__).parent / "golden"
REPORTS: dict[str, Callable[[], Report]] = {
    "starved": samples.starved, "balanced": samples.balanced, "unreliable": samples.unreliable,
}  # fmt: skip
LINES = {("train.py", 41): "for x, y in loader:", ("src/eval/metrics.py", 118): "score = f1_score(labels, predictions)"}


def source(file: str, line: int) -> str:
    """The lines of a program that is not on disk."""
    return LINES.get((file, line), "")


def golden(name: str, text: str) -> None:
    """Compare with tests/golden/NAME; UPDATE_GOLDEN=1 writes it instead, for a person to read in the diff."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REPORTS)
def test_golden_wide(name: str) -> None:
    golden(f"report_{name}.txt", render(REPORTS[name](), source=source))


def test_golden_narrow_ascii() -> None:
    golden("report_starved_80_ascii.txt", render(samples.starved(), width=80, ascii_only=True, source=source))


def test_golden_color() -> None:
    golden("report_starved_color.txt", render(samples.starved(), color=True, source=source).replace("\x1b", "ESC"))


@pytest.mark.parametrize("name", REPORTS)
def test_golden_markdown(name: str) -> None:
    golden(f"report_{name}.md", as_comment(REPORTS[name]()))


def test_color_changes_no_word() -> None:
    report = samples.starved()
    colored = render(report, color=True, source=source)
    assert colored != render(report, source=source)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [line.rstrip() for line in plain.splitlines()] == render(report, source=source).splitlines()


@pytest.mark.parametrize("width", [100, 80, 60, 40])
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = render(REPORTS[name](), width=width, source=source).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_the_verdict_comes_first_and_a_typical_run_is_short() -> None:
    text = render(samples.balanced())
    assert text.startswith("Balanced: ")
    assert text.count("\n") <= 40
    assert render(samples.starved(), source=source).count("\n") <= 50


def test_the_verdict_is_said_again_where_it_scrolled_away() -> None:
    once, twice = render(samples.starved()), render(samples.starved(), rows=24)
    assert twice.startswith(once)
    assert twice.count("Data loading: ") == 2
    assert twice.removeprefix(once).lstrip().startswith("Data loading: ")


def test_shares_print_as_a_sum_of_100() -> None:
    report = msgspec.structs.replace(
        samples.starved(), ledger=tuple(Account(name, 1e6, 1 / 3) for name in ("compute", "host", "unattributed"))
    )
    text = render(report)
    assert [float(share) for share in re.findall(r"(\d+\.\d) %  +1\.00 ms", text)] == [33.4, 33.3, 33.3]
    assert "100.0 %" in text


def test_a_ledger_that_claims_too_much_is_not_dressed_up() -> None:
    report = msgspec.structs.replace(
        samples.starved(), ledger=(Account("host", 62e6, 1.0), Account("gc", 6.2e6, 0.1), Account("unattributed", 0, 0))
    )
    assert "110.0 %" in render(report)


def test_notes_beyond_three_are_folded() -> None:
    text = render(samples.starved())
    assert "and 2 notes: BRR205, BRR310" in text
    assert "zero_grad" not in text


def test_what_would_settle_an_unreliable_run_is_said_at_once() -> None:
    for text in (render(samples.unreliable()), brief(samples.unreliable())):
        assert "\nConfidence: low: as the headline says; run it again on an idle machine\n" in text[:300]
    assert "on an idle machine" not in brief(samples.starved()), "a note is no part of the first screen"
    assert "measuring BRR902 The plain steps spread" in render(samples.starved())


def test_cost_in_bytes_and_no_cost() -> None:
    bytes_only = samples.finding("BRR601", 0.0, cost_bytes=1 << 30)
    nothing = samples.finding("BRR501", 0.0, confidence="inferred")
    text = render(msgspec.structs.replace(samples.starved(), findings=(bytes_only, nothing)))
    assert re.search(r"BRR601 note +data-wait +1\.00 GiB\n", text)
    assert re.search(r"BRR501 note +data-wait +costs nothing on this device\n", text)


def test_device_rank_exit_and_loops_are_shown_where_they_say_something() -> None:
    loops = tuple(OtherLoop(f"loop {i}", 0.1, 3) for i in range(6))
    device = Device("NVIDIA H100", 0.621, Busy(0.81))
    text = render(msgspec.structs.replace(samples.unreliable(), device=device, loops=loops))
    assert "device    NVIDIA H100: busy 62.1 % of the step (81.0 % from first to last kernel)" in text
    assert "rank      1 of 2" in text
    assert "exit      1 from python train.py" in text
    assert "and 2 more" in text
    assert "exit" not in render(samples.starved())


def test_where_no_step_was_timed_none_is_said_to_take_0_ns() -> None:
    report = samples.unreliable()
    step = msgspec.structs.replace(report.step, count=1, plain_count=0, plain_wall_ns=0, low_ns=0, high_ns=0)
    text = render(msgspec.structs.replace(report, step=step), width=100)
    assert "none was timed: 1 seen (training), of which the first do not count" in text and "0 ns median" not in text


def test_many_skipped_rules_of_one_reason_are_counted() -> None:
    skipped = tuple((f"BRR70{i}", "one rank only") for i in range(5))
    assert "5 rules (one rank only)" in render(msgspec.structs.replace(samples.starved(), skipped_rules=skipped))


def test_paths_below_the_root_are_relative() -> None:
    found = samples.finding(where=(Span("/srv/project/src/train.py", 3, "main"), Span("/opt/lib/x.py", 9, "f")))
    text = render(msgspec.structs.replace(samples.starved(), findings=(found,)), root="/srv/project")
    assert "    src/train.py:3 main  from /opt/lib/x.py:9\n" in text


# Everything below: strings that a program chose.


def _filled(report: Report, texts: list[str], numbers: list[float], whole: list[int]) -> Report:
    """The report with every string, float and integer replaced, in turn, by one of these."""
    turn = iter(range(1_000_000))

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [fill(inner) for inner in value]
        if isinstance(value, str):
            return texts[next(turn) % len(texts)]
        if isinstance(value, float):
            return numbers[next(turn) % len(numbers)]
        if isinstance(value, bool):
            return value
        return whole[next(turn) % len(whole)] if isinstance(value, int) else value

    return msgspec.convert(fill(msgspec.to_builtins(report)), Report)


HOSTILE = ("\x1b[2J", "\x9b31m", "\u202e", "[bold]x[/]", "\r\n", "数" * 200, ":smile:")
FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
TEXTS = st.lists(st.text() | st.sampled_from(HOSTILE), min_size=1)
NUMBERS = st.lists(st.floats(), min_size=1)
WHOLE = st.lists(st.integers(-(2**62), 2**62), min_size=1)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts=TEXTS, numbers=NUMBERS, whole=WHOLE, ascii_only=st.booleans(), width=st.integers(1, 200))
def test_rendering_never_raises_and_lets_no_control_through(
    texts: list[str], numbers: list[float], whole: list[int], ascii_only: bool, width: int
) -> None:
    report = _filled(samples.starved(), texts, numbers, whole)
    text = render(report, width=width, ascii_only=ascii_only, source=lambda file, line: file)
    short = brief(report, width=width, ascii_only=ascii_only, source=lambda file, line: file)
    for rendered in (text, short, as_comment(report)):
        assert not {unicodedata.category(char) for char in rendered if char != "\n"} & FORBIDDEN
    assert not ascii_only or text.isascii()


def test_hostile_strings_open_no_escape_in_color_either() -> None:
    report = _filled(samples.starved(), ["\x1b[2J\x1b]0;owned\x07[red]x[/red]\u202e"], [1e6], [41])
    colored = render(report, color=True, source=lambda file, line: file)
    assert not re.search(r"\x1b(?!\[[0-9;]*m)", colored)
    assert "owned" not in colored
    assert "[red]x[/red]" in re.sub(r"\x1b\[[0-9;]*m", "", colored)


class Terminal(io.StringIO):
    """A terminal that does not know its size."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_file_gets_the_plain_report() -> None:
    stream = io.StringIO()
    show(samples.starved(), stream, root="/nowhere", verbose=True)
    assert stream.getvalue() == render(samples.starved(), width=WIDTH)
    stream = io.StringIO()
    show(samples.starved(), stream, root="/nowhere")
    assert stream.getvalue() == brief(samples.starved(), width=WIDTH)


@pytest.mark.parametrize(("said", "width"), [("80", 80), ("132", 132), ("0", WIDTH), ("wide", WIDTH), ("", WIDTH)])
def test_columns_are_respected_without_a_terminal(monkeypatch: pytest.MonkeyPatch, said: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", said)
    stream = io.StringIO()
    show(samples.starved(), stream, root="/nowhere", verbose=True)
    assert stream.getvalue() == render(samples.starved(), width=width)


@pytest.mark.parametrize("width", [132, 100, 80])
@pytest.mark.parametrize("name", REPORTS)
def test_the_brief_has_30_lines_at_most(name: str, width: int) -> None:
    text = brief(REPORTS[name](), width=width, source=source)
    assert text.count("\n") <= 30
    assert max(map(cell_len, text.splitlines())) <= width
    assert "next      gobrrr" in text


def test_the_brief_tells_advice_whole_where_there_is_room() -> None:
    """A stranger's was cut after one line, where it began to say what to do."""
    advice = " ".join(f"word{n}" for n in range(50))  # 350 columns: four lines of 96
    report, replace = samples.starved(), msgspec.structs.replace
    long = replace(report.findings[0], advice=advice, message="short")
    few = brief(replace(report, findings=(long,)), width=100)
    assert "word49" in few and few.count("\n") <= 30
    many = brief(replace(report, findings=(long,) * 3), width=100)
    assert many.count("\n") <= 30 and many.count("word0") == 3, "three findings come before whole advice"
    assert many.count("word15") == 1, "and the first is cut last"
    narrow = brief(replace(report, findings=(long,) * 3), width=60)
    assert narrow.count("\n") <= 30 and narrow.count("word0") == 2


def test_a_heading_is_one_line_whatever_the_rules_name() -> None:
    report, replace = samples.starved(), msgspec.structs.replace
    longest = max((each.name for each in load().values()), key=len)
    guess = replace(report.findings[0], name=longest, confidence="inferred")
    for text in (render(replace(report, findings=(guess,)), width=100), brief(replace(report, findings=(guess,)))):
        (head,) = [line for line in text.splitlines() if longest in line and "Data-bound" not in line]
        assert "(inferred 30.0, at least 12.0)" in head


def test_the_brief_says_what_it_leaves_out_and_how_to_see_it() -> None:
    text = brief(samples.starved(), source=source)
    assert "4 more findings, 1 note on the measurement, 1 other loop: gobrrr report -v shows them" in text
    assert "all of it: gobrrr report -v .gobrrr/train-1" in text
    alone = msgspec.structs.replace(
        samples.starved(), loops=(), findings=tuple(filter(is_doubt, samples.starved().findings))
    )
    assert "1 note on the measurement: gobrrr report -v shows it" in brief(alone)
    assert text.count("BRR4") + text.count("BRR3") >= 3


def test_80_columns_keep_what_the_accounts_mean() -> None:
    for text in (render(samples.starved(), width=80), brief(samples.starved(), width=80)):
        assert "waiting for the next batch" in text
    assert all(len(gloss) <= 30 for _, gloss in ACCOUNTS.values())


def costly(num: int = 12) -> Report:
    ops = [
        OpGroup(f"aten::op{i}", phase="forward", where=(Span("net.py", i, "forward"),), calls=2.0, ns=1e6 * (20 - i),
                floor_ns=1e5, flops=1e9, bytes=1e6, bound="compute")
        for i in range(num)
    ]  # fmt: skip
    ledger = samples.starved_ledger(ops=tuple(ops))
    return build(ledger, samples.machine(), [samples.finding()])


def test_of_a_device_the_ops_by_their_kernels_are_told() -> None:
    device = Device(
        "NVIDIA H100", 0.6, Busy(0.8), work=(DeviceOp("aten::mm", "bf16", 3.0, 4e6, 3e6, 1e9, 1e6, "compute", 3e9),)
    )
    text = brief(msgspec.structs.replace(costly(), device=device))
    assert "mm bf16" in text and "op0" not in text and "25.0 % of peak compute" in text


def test_a_rate_above_its_peak_is_not_printed() -> None:
    work = (DeviceOp("aten::div", "fp32", 3.0, 4e6, 0.0, 9e12, 4e6, "bandwidth", 1e12),)
    text = brief(msgspec.structs.replace(costly(), device=Device("NVIDIA H100", 0.6, Busy(0.8), work=work)))
    assert "at peak bandwidth, or its work is counted too high" in " ".join(text.split()) and "B/s" not in text


def test_the_costliest_ops_are_named_with_line_share_and_rate() -> None:
    assert len(costly().ops) == 10
    assert costly().ops[0].share == pytest.approx(20 / 62)
    assert costly().ops[0].flops_per_s == pytest.approx(1e9 / 0.02)
    text = brief(costly())
    assert "32.3 %  20.0 ms  op0 x2  50.0 GFLOP/s  forward of net.py:0 in forward" in text
    assert "op2 x2" in text and "op3 x2" not in text
    assert "op9 x2" in brief(costly(), ops=True) and "op9 x2" in render(costly())


@pytest.mark.parametrize(("us", "told"), [(4, False), (6, True)])
def test_calls_as_short_as_the_clock_is_coarse_have_no_rate(us: float, told: bool) -> None:
    mm = OpGroup("aten::mm", calls=10.0, ns=10_000 * us, flops=1e6, bytes=1e4, bound="compute")
    (share,) = build(samples.starved_ledger(ops=(mm,)), samples.machine(), []).ops
    assert (share.flops_per_s is not None, share.bytes_per_s is not None) == (told, told)


def test_a_terminal_gets_colors_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    show(samples.starved(), stream)
    assert "\x1b[1;31m" in stream.getvalue()
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            stream = Terminal()
            show(samples.starved(), stream)
            assert "\x1b" not in stream.getvalue()


def test_a_real_terminal_of_any_size() -> None:
    _, child = pty.openpty()
    os.set_blocking(child, False)
    with os.fdopen(child, "w", encoding="ascii", errors="strict") as stream:
        kept = io.StringIO()
        stream.write = kept.write  # type: ignore[method-assign]
        show(samples.balanced(), stream)
    assert kept.getvalue().isascii()
    assert "Balanced" in kept.getvalue()


def test_what_was_rehearsed_here_says_so() -> None:
    found = msgspec.structs.replace(samples.finding(), basis="rehearsed")
    report = msgspec.structs.replace(samples.starved(), findings=(found,))
    assert "(rehearsed here 30.0, at least 12.0)" in render(report)


@pytest.mark.parametrize(("command", "code", "next_one"), [
    (("python", "train.py", "a b"), 0, "gobrrr tune train.py 'a b'"),
    (("python", "-m", "pkg"), 0, "gobrrr tune -m pkg"),
    (("python", "-c", "import x"), 0, "gobrrr tune -- python -c 'import x'"), (("python", "-c", "import x\ny"), 0, ""),
    (("python", "train.py"), 130, "gobrrr tune train.py"), (("python", "train.py"), 1, ""), (("bash", "x"), 0, ""),
])  # fmt: skip
def test_tune_is_advised_as_it_can_be_typed_where_the_program_did_not_fail(
    command: tuple[str, ...], code: int, next_one: str
) -> None:
    report = msgspec.structs.replace(samples.starved(), command=command, exit_code=code)
    text = " ".join(render(report).split())
    assert next_one in text and ("gobrrr tune" in text) == bool(next_one)
    assert "gobrrr tune" not in render(msgspec.structs.replace(report, rank=0, world_size=2))


def test_a_comment_says_mean_of_a_mean_and_no_figure_where_nothing_was_timed() -> None:
    report = samples.starved()
    mean = msgspec.structs.replace(report, step=msgspec.structs.replace(report.step, averaged=True))
    assert "62.0 ms mean of 48 training steps" in as_comment(mean) and "edian of 48" not in as_comment(mean)
    none = msgspec.structs.replace(report, step=msgspec.structs.replace(report.step, plain_count=0, plain_wall_ns=0))
    assert "none was timed" in as_comment(none) and "0 ns" not in as_comment(none).partition("| finding")[0]
