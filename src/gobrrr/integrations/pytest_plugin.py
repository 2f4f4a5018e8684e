"""`pytest --gobrrr`: tests marked with @pytest.mark.gobrrr are watched, and fail where their step wastes too much.

    @pytest.mark.gobrrr(max_data_wait=0.1, no=["BRR501", "critical"])
    def test_training(): ...

Without --gobrrr nothing of it is imported but this file, and a marked test runs as any other.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:  # pytest loads this file at every start: what is heavy waits until a test is watched
    from gobrrr.rules.verdict.report import Report

MARK = "gobrrr"
HELP = (
    "gobrrr(max_<account>=share, no=[codes or severities]): under --gobrrr, fail where an account (data_wait, host, "
    "sync, ...) has more of the step, or where such a finding is there"
)
CROWDED = "BRR905"
_MAX = "max_"


class Limits(NamedTuple):
    """Limits that a marker sets: the largest share of the step for each account, and findings that must not occur."""

    shares: dict[str, float]
    no: tuple[str, ...]


class Verdict(NamedTuple):
    """Outcome of a watched test. `why_not`: why nothing can be said; `broken`: broken limits, one sentence each."""

    said: str
    broken: tuple[str, ...] = ()
    why_not: str = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--gobrrr."""
    parser.getgroup("gobrrr").addoption(
        "--gobrrr", action="store_true", help="watch tests marked with @pytest.mark.gobrrr, and fail those that waste"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker is always known; watching is there where it was asked for."""
    config.addinivalue_line("markers", HELP)
    if config.getoption("gobrrr"):
        config.pluginmanager.register(Watching(), "gobrrr-watching")


class Watching:
    """Watches marked tests, judges what was seen, and tells of it at the end."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A marker that says what nobody knows ends the run before any test."""
        for item in items:
            if (marker := item.get_closest_marker(MARK)) is not None:
                limits(marker, item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """The test's own failure comes first; one that passes is held against its limits."""
        marker = item.get_closest_marker(MARK)
        if marker is None:
            return (yield)
        import gobrrr
        from gobrrr.capture.process import bootstrap
        from gobrrr.errors import GobrrrError

        if bootstrap.session is not None and not bootstrap.session.ended:  # under `gobrrr run` the whole is watched
            return (yield)
        folder = self._folder(item)
        watching = gobrrr.watch(folder, show=False)
        try:
            watching.__enter__()
        except GobrrrError as error:
            pytest.fail(f"gobrrr: {error}", pytrace=False)
        try:
            result = yield
        finally:
            watching.__exit__(None, None, None)
        verdict = _judged(folder, limits(marker, item.nodeid))
        item.user_properties.append((MARK, f"no verdict: {verdict.why_not}" if verdict.why_not else verdict.said))
        if verdict.broken and not verdict.why_not:
            pytest.fail("gobrrr: " + "\n  ".join(verdict.broken), pytrace=False)
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line for each watched test; of xdist's workers too."""
        lines = list(_lines(terminalreporter))
        if lines:
            terminalreporter.section("gobrrr")
            for line in lines:
                terminalreporter.write_line(line)

    def _folder(self, item: pytest.Item) -> Path:
        """A new one below .gobrrr: named as the test, as far as a file may be."""
        name = re.sub(r"[^\w.-]+", "-", item.name)[:60]
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(self._numbers)}"
        return item.config.rootpath / ".gobrrr" / f"{name}-{stamp}"


def limits(marker: pytest.Mark, where: str) -> Limits:
    """Return the limits that the marker sets. Raises pytest.UsageError for an argument that makes no sense."""
    from gobrrr import rules
    from gobrrr.ledger.model.ledger import ACCOUNTS
    from gobrrr.rules.model.finding import SEVERITIES

    shares, no = {}, marker.kwargs.get("no", ())
    for name, value in marker.kwargs.items():
        account = name.removeprefix(_MAX)
        if name == "no":
            continue
        if not name.startswith(_MAX) or account not in ACCOUNTS:
            raise pytest.UsageError(f"{where}: @pytest.mark.gobrrr({name}=...): no account of that name; there are "
                                    f"{', '.join(_MAX + account for account in ACCOUNTS)}, and no=[...]")  # fmt: skip
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise pytest.UsageError(f"{where}: {name}={value!r} is no share of the step: between 0 and 1")
        shares[account] = float(value)
    words = (no,) if isinstance(no, str) or not isinstance(no, Iterable) else tuple(no)
    wrong = [word for word in words if word not in SEVERITIES and word not in rules.load()]
    if wrong or marker.args:
        why = f"no={wrong or marker.args!r}: neither codes (BRR405) nor {', '.join(SEVERITIES)}"
        raise pytest.UsageError(f"{where}: {why}")
    return Limits(shares, words)


def _judged(folder: Path, allowed: Limits) -> Verdict:
    """Judge the recording; a test without a step is broken: its marker asks for a verdict on one."""
    import sys

    from gobrrr.errors import GobrrrError
    from gobrrr.pipeline import runs
    from gobrrr.report.forms.json import to_json
    from gobrrr.system import files

    try:
        report = runs.report_of(folder, list(sys.argv), 0, python=sys.executable, rehearsal=False)
    except GobrrrError as error:
        return Verdict("no step", broken=(str(error),))
    files.write(folder / "report.json", to_json(report))
    found = verdict(report, allowed)
    return found._replace(broken=(*found.broken, f"all of it: gobrrr report -v {folder}")) if found.broken else found


def verdict(report: Report, allowed: Limits) -> Verdict:
    """Hold a report against limits; no verdict where one breaks on crowded cores: a wait may be other processes'."""
    from gobrrr import units
    from gobrrr.system.escape import plain

    said = f"{units.duration(report.step.plain_wall_ns)} a step: {plain(report.verdict.sentence)}"
    if report.verdict.bound == "unreliable":
        return Verdict(said, why_not=plain(report.verdict.sentence))
    broken = tuple(map(plain, _broken(report, allowed)))
    crowd = [f for f in report.findings if f.code == CROWDED and f.severity != "note"]
    if broken and crowd:
        return Verdict(said, why_not=f"{plain(crowd[0].message)}; {'; '.join(broken)}")
    return Verdict(said, broken)


def _broken(report: Report, allowed: Limits) -> Iterator[str]:
    from gobrrr import units
    from gobrrr.report.told.checked import is_wanted
    from gobrrr.rules.verdict.place import short

    for account in report.ledger:
        limit = allowed.shares.get(account.account, 1.0)
        if account.share > limit:
            name, share = account.account.replace("_", " "), units.share(account.share)
            yield f"{name} has {share} of the step ({units.duration(account.ns)}), {units.share(limit)} is allowed"
    for finding in report.findings:
        if is_wanted(finding, allowed.no):
            place = f" at {short(finding.where[0])}" if finding.where else ""
            yield f"{finding.code} {finding.name}{place}: {finding.message.rstrip('.')}. {finding.advice}".strip()


def _lines(reporter: pytest.TerminalReporter) -> Iterator[str]:
    for reports in reporter.stats.values():
        for report in reports:
            for name, said in getattr(report, "user_properties", ()):
                if name == MARK and getattr(report, "when", "") == "call":
                    yield f"{report.nodeid}  {said}"
