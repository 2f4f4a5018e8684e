"""Every form of every verb that is the same each time, as it was when it was last looked at.

`make snapshots` writes them anew; `git diff` then shows what a change of words or figures does to people.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("syrupy")

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from gobrrr import __version__
from gobrrr.cli.main import main
from tests.snapshots.cases import Case, every

LONGEST = 100_000
"""Characters of an output that are kept; the whole of such is what the unit tests of its form look at."""
HELP_CHANGED = (3, 13)
"""argparse writes `-o, --output FILE` from then on."""
_FLOAT = re.compile(r"-?\d+\.\d{7,}(e[+-]?\d+)?")
_OTHER = re.compile(r"gobrrr: recipe: (torch|Python) is not the one .*\n")
"""What a recipe says where this torch or Python is not its own."""


class TextFile(SingleFileSnapshotExtension):
    """One file per snapshot, to be read and compared by people."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def scratch(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like any other, on a machine with two cores, whose terminal has 100 columns."""
    for file in shelf.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    said = {"COLUMNS": "100", "NO_COLOR": "1", "TZ": "UTC", "GOBRRR_CACHE": str(shelf / "cache"), "TERM": "dumb"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    for name in ("GOBRRR_PRICE_PER_HOUR", "GITHUB_ACTIONS", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["gobrrr"])
    time.tzset()
    yield tmp_path
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("case", every(), ids=lambda case: case.name)
def test_form(case: Case, scratch: Path, capfdbinary: pytest.CaptureFixture[bytes], snapshot: object) -> None:
    if "--help" in case.words and sys.version_info >= HELP_CHANGED:
        pytest.skip("argparse writes its help otherwise in this Python")
    try:
        code: object = main(case.words)
    except SystemExit as leaving:  # --help
        code = leaving.code or 0
    out, err = capfdbinary.readouterr()
    parts = [("stdout", out), ("stderr", err), *((name, (scratch / name).read_bytes()) for name in case.writes)]
    told = "".join(f"[{name}]\n{_plain(data, scratch)}\n" for name, data in parts if data)
    assert f"$ gobrrr {' '.join(case.words)}\n[exit {code}]\n{told}" == snapshot(extension_class=TextFile)


def _plain(data: bytes, scratch: Path) -> str:
    """As text without what differs from place to place: folders, the version, this computer's mark, how long ago a
    run was and what it was started with, a sum's last digits, which follow the width of a processor's registers."""
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    text = data.decode("utf-8", "backslashreplace").replace("\r", "\\r")
    text = text.replace(str(scratch), "<SCRATCH>").replace(sys.executable, "<PYTHON>")
    text = re.sub(rf'(gobrrr |"(?:version|gobrrr)": ?"){re.escape(__version__)}', r"\1<VERSION>", text)
    text = re.sub(r'("(host|fingerprint)": ?")[0-9a-f]{16}"', r'\1<MARK>"', text)
    text = re.sub(r'"setup": ?\{[^{}]*(\{[^{}]*\}[^{}]*)?\}', '"setup": {}', text)
    text = re.sub(r'("silent_ns": ?)\d+', r"\1<SINCE>", _OTHER.sub("", text))
    text = _FLOAT.sub(lambda found: f"{float(found[0]):.6g}", text)
    text = re.sub(r"<(style|script)>.*?</\1>", r"<\1>...</\1>", text, flags=re.S)
    text = re.sub(r"'sha256-[^']+'|&#39;sha256-[^&]+&#39;", "<SHA>", text)
    if max(map(len, text.splitlines()), default=0) > 1000:  # one line: broken where a diff can be read
        text = re.sub(r'(?<=[}\]]),(?=["{\[])', ",\n", text)
    lines = [line.rstrip() for line in text.split("\n")]
    whole = "\n".join(lines)
    return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}\n... of {len(whole)} characters"


def test_each_has_a_name_that_a_file_can_have() -> None:
    assert all(re.fullmatch(r"[\w.-]+", case.name) for case in every())
    assert os.sep not in "".join(case.name for case in every())
