"""What is snapped: a command line per snapshot, over the files that shelf.py lays out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FORMS = ("text", "json", "markdown", "csv", "html", "sarif", "github", "perfetto")
RUNS = ("starved", "answers", "ranks")
VERBS = ("run", "tune", "verify", "remedies", "diagnose", "compare", "check", "top", "report", "explain", "mcp", "lab",
         "machine", "completion", "scale", "history")  # fmt: skip
TRACE = "starved/rank0.window1-6.trace.json"


class Case(NamedTuple):
    """A command line, and the files that it writes which are snapped, too."""

    name: str
    words: tuple[str, ...]
    writes: tuple[str, ...] = ()


def every() -> list[Case]:
    """All of them; no two of one name."""
    found = [*_pages(), *_diagnoses(), *_runs(), *_pairs(), *_receipts(), *_hostile(), *_asked_wrongly()]
    assert len({case.name for case in found}) == len(found)
    return found


def _case(name: str, *words: str, writes: tuple[str, ...] = ()) -> Case:
    return Case(name, words, writes)


def _in_forms(name: str, verb: str, *words: str, forms: tuple[str, ...] = FORMS) -> Iterator[Case]:
    for form in forms:
        yield _case(f"{name}.{form}", verb, *words, "--format", form)


def _pages() -> Iterator[Case]:
    yield _case("help")
    for verb in VERBS:
        yield _case(f"help.{verb}", verb, "--help")
    yield _case("explain", "explain")
    yield _case("explain.BRR405", "explain", "BRR405")
    yield _case("remedies", "remedies")
    yield _case("remedies.fused_optimizer", "remedies", "fused_optimizer")
    yield _case("machine", "machine")


def _diagnoses() -> Iterator[Case]:
    yield from _in_forms("diagnose.trace", "diagnose", TRACE)
    yield _case("diagnose.trace.verbose", "diagnose", TRACE, "-v")
    yield _case("diagnose.trace.machine", "diagnose", TRACE, "-v", "--machine", "machine.json", "--portability")
    yield _case("diagnose.trace.price", "diagnose", TRACE, "-v", "--price-per-hour", "3.5", "--redact", "starved")
    for way in ("op", "shape", "line", "module"):
        yield _case(f"diagnose.trace.by.{way}", "diagnose", TRACE, "--by", way)
    yield from _in_forms("diagnose.job", "diagnose", "ranks", "--jobs", "1",
                         forms=("text", "json", "markdown", "csv", "html", "sarif"))  # fmt: skip
    yield _case("diagnose.archive", "diagnose", "mixed.tar", "--jobs", "1")


def _runs() -> Iterator[Case]:
    yield from _in_forms("report.starved", "report", "starved")
    for run in RUNS:
        yield _case(f"report.{run}.brief", "report", run)
        yield _case(f"report.{run}.verbose", "report", run, "-v", "--ops")
        yield _case(f"top.{run}", "top", "--once", run)
        # A program that puts a recording where its run's was to be: it is judged as if it had just been made.
        yield _case(f"judged_anew.{run}", "run", "-o", "again", "--no-rehearsal", "-v", "--", "sh", "replay.sh", run,
                    writes=("again/report.json",))  # fmt: skip
        for form in ("text", "json"):
            yield _case(f"check.{run}.{form}", "check", "--format", form, run)
    yield _case("top.starved.json", "top", "starved", "--json")
    yield from _in_forms("check.against", "check", "--against", "starved", "--shares", "answers",
                         forms=("text", "json", "sarif", "github"))  # fmt: skip
    yield _case("check.file", "check", "--fail-on", "BRR101,warning", "-o", "out.sarif", "starved",
                writes=("out.sarif",))  # fmt: skip


def _pairs() -> Iterator[Case]:
    yield from _in_forms("compare", "compare", "starved", "answers", forms=("text", "json", "markdown", "html", "csv"))
    yield _case("compare.traces", "compare", TRACE, "ranks/rank0.window1-86.trace.json", "--ops", "4")


def _receipts() -> Iterator[Case]:
    yield from _in_forms("receipt.kept", "report", "receipt_kept.json")
    for name in ("memory", "none_kept"):
        yield from _in_forms(f"receipt.{name}", "report", f"receipt_{name}.json", forms=("text", "markdown"))
    for name in ("kept", "memory", "none_kept"):
        yield _case(f"verify.{name}", "verify", f"receipt_{name}.json")
    for name in ("kept", "memory"):
        yield _case(f"recipe.{name}", "run", "-o", "again", "--recipe", f"recipe_{name}.toml", "--", "sh", "-c",
                    "exit 3")  # fmt: skip


def _hostile() -> Iterator[Case]:
    from tests.snapshots.shelf import HOSTILE, RECIPES

    for name in HOSTILE:
        yield _case(f"hostile.diagnose.{name}", "diagnose", name)
        yield _case(f"hostile.report.{name}", "report", name)
        if name.startswith("receipt"):
            yield _case(f"hostile.verify.{name}", "verify", name)
    for name in RECIPES:
        yield _case(f"hostile.recipe.{name}", "run", "-o", "again", "--recipe", name, "--", "sh", "-c", "exit 3")
    yield from _in_forms("hostile.evil", "diagnose", "evil.json", forms=("markdown", "csv", "html", "github", "sarif"))
    yield _case("hostile.run", "top", "--once", "badrun")


def _asked_wrongly() -> Iterator[Case]:
    lines = {
        "verb": "reprot", "script": "train.py", "option": "report --formt json", "nowhere": "diagnose nowhere.json",
        "no_report": "report badrun", "code": "explain BRR000", "remedy": "remedies gold_plating",
        "fail_on": "check --fail-on sometimes starved", "order": "check train.py --against b.json",
        "elsewhere": f"check --against {TRACE} starved", "onto": "report starved -o starved/report.json",
        "form": "compare starved answers --format sarif", "program": "run", "gone": "run nowhere.py",
        "budget": "run --budget much train.py", "price": "report starved --price-per-hour dear",
        "redact": "report starved --redact (", "try": "tune --try gold_plating replay.py",
        "minutes": "tune --minutes 0 replay.py", "resume": "tune --resume badrun replay.py",
        "nothing_recorded": "run -o again -- sh -c true", "no_torch": "run -o again replay.py",
    }  # fmt: skip
    for name, line in lines.items():
        yield _case(f"wrong.{name}", *line.split())
