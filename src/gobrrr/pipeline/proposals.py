"""Which edits of the source go into a tuning: those that findings call for, the user's own, those of a command."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from gobrrr.errors import GobrrrError
from gobrrr.remedies.edits import catalogue
from gobrrr.remedies.model import SAFETY, played
from gobrrr.rules.model.finding import Finding, Saving
from gobrrr.rules.verdict.report import Report
from gobrrr.trial.edit import reading
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.sandbox.workspace import Workspace

SCHEMA = "gobrrr.finding/1"
FENCED = re.compile(r"```(?:diff|patch)?\n(.*?)```", re.DOTALL)
"""A diff as language models write one."""


class Proposal(NamedTuple):
    """An edit, and what speaks for it. `named`: the user asked for it."""

    edit: ProgramEdit
    saving: Saving = Saving()
    code: str = ""
    risk: int = SAFETY.index("tolerance")
    named: bool = False

    def candidate(self, others: Sequence[Proposal]) -> Candidate:
        """The edit as one to be raced; two proposals for one finding exclude each other."""
        rivals = {each.edit.name for each in others if each is not self and self.code and each.code == self.code}
        return Candidate(self.edit.name, self.saving, frozenset(rivals), self.named, risk=self.risk, cause=self.code)


def on_trial(proposals: Sequence[Proposal]) -> dict[str, EditOnTrial]:
    """The edits by their names, as a referee takes them."""
    return {each.edit.name: EditOnTrial(each.edit) for each in proposals}


def of_catalogue(
    report: Report, command: Sequence[str], source: Path, named: Collection[str], live: Collection[str] = ()
) -> Iterator[Proposal]:
    """Edits that findings call for, or the user, where their place is found; semantic ones only when they are named,
    those that one of the `live` remedies is better than as well. Savings are rehearsed where they were."""
    savings = {finding.code: finding.saving for finding in report.findings}
    for each in catalogue.offers(report, command, source, named=named):
        second = each.safety == "semantic" or not set(live).isdisjoint(catalogue.edit(each.name).second_to)
        if not second or each.name in named:
            edit = ProgramEdit(each.name, dict(each.files), dict(each.env), diff=each.diff)
            known = played(each.name, report)
            saving = known.saving if known is not None else savings.get(each.code, Saving())
            yield Proposal(edit, saving, each.code, SAFETY.index(each.safety), each.name in named)


def proposed(
    command: str, report: Report, source: Path, folder: Path, seconds: float, stream: TextIO
) -> Iterator[Proposal]:
    """Edits that a command of the user's proposes: once for each finding it is given that as JSON on its stdin, in a
    copy of the program's folder, and answers with a diff on its stdout. It runs with the user's own rights."""
    findings = [each for each in report.findings if each.saving.ceiling_ns > 0]
    for number, finding in enumerate(findings, 1):
        nth = [each.code for each in findings[:number]].count(finding.code)
        which = f" ({nth})" if nth > 1 else ""
        name = f"{finding.code}{which} by {Path(shlex.split(command)[0]).name}"
        stream.write(f"gobrrr: asking for an edit for {finding.code} ({number} of {len(findings)}): {command}\n")
        stream.flush()
        with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as place:
            try:
                text = _answer(
                    command, finding, Workspace(source, Path(place) / "work").make(), seconds / len(findings)
                )
                edit = reading.from_diff(name, text.encode(), source)
            except GobrrrError as error:
                stream.write(f"gobrrr: no edit for {finding.code}: {error.message}\n")
                continue
        yield Proposal(edit, finding.saving, finding.code, named=True)


def _answer(command: str, finding: Finding, work: Path, seconds: float) -> str:
    """Return what the command says to a finding; the diff in it, where that stands in a block. Raises GobrrrError."""
    asked = msgspec.json.encode({"schema": SCHEMA, "folder": str(work), "finding": msgspec.to_builtins(finding)})
    try:
        process = subprocess.Popen(shlex.split(command), cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   start_new_session=True)  # fmt: skip
    except OSError as error:
        raise GobrrrError(f"cannot start {command!r}: {error.strerror}") from None
    with process:
        try:
            told, _ = process.communicate(asked, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise GobrrrError(f"the command gave no answer within {seconds:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever it has left behind
    if process.returncode:
        raise GobrrrError(f"the command ended with {process.returncode}")
    text = told[: reading.MOST_PATCH_BYTES].decode(errors="replace")
    found = FENCED.search(text)
    return found[1] if found else text
