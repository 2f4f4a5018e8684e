"""The files that are snapped: recordings, receipts and recipes as they were once written, and files of strangers."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gobrrr.machine.measure.store import torch_version
from gobrrr.machine.probe.fingerprint import fingerprint
from gobrrr.machine.probe.system_probe import probe
from tests.support.machine_samples import machine

STORED = Path(__file__).parent / "stored"
TORCH = "2.13.0+cpu"
"""What the recordings were made with."""
REPLAY = """# puts a recording into the folder of the run that watches this
for file in "$1"/rank* "$1"/seen*; do [ -e "$file" ] && cp -p "$file" again/; done
exit 0
"""
EVIL = "\x1b]0;owned\x07\x1b[31mred\u202e\u05d0\n\r\t<script>alert(1)</script>|`x`::error::%0A\u2028"
SCHEMA = '"schema": "gobrrr.'


def _events() -> list[dict[str, object]]:
    """Six steps of a program whose every name is an attack."""
    here = {"ph": "X", "pid": 7, "tid": 7}
    return [
        event
        for start in range(1_000_000, 1_060_000, 10_000)
        for event in (
            {**here, "cat": "user_annotation", "name": f"ProfilerStep#{start}", "ts": start, "dur": 9_900},
            {**here, "cat": "python_function", "name": f"{EVIL}.py(12): {EVIL}", "ts": start + 10, "dur": 9_000},
            {**here, "cat": "cpu_op", "name": f"aten::{EVIL}", "ts": start + 100, "dur": 3_000,
             "args": {"Input Dims": [[64, 64]], "Input type": [EVIL], "Call stack": EVIL}},
        )
    ]  # fmt: skip


def _receipt(**changes: object) -> str:
    kept = {"kept": ["fused_optimizer"], "speedup": {"median": 2, "low": 1.5, "high": 3}, "folder": "/",
            "guard": {"verdict": "exact"}, "command": ["/bin/sh", "x.sh"]}  # fmt: skip
    return json.dumps({"schema": "gobrrr.receipt/1", **kept, **changes})


HOSTILE = {
    "empty.json": "", "text.json": "just words", "deep.json": "[" * 100_000, "no_events.json": "{}",
    "truncated.json": '{"traceEvents": [{"ph": "X", "ca', "not_gzip.json.gz": "hello", "text.sqlite": "no database",
    "profile.nsys-rep": "x", "broken.tar.gz": "x", "evil.json": json.dumps({"traceEvents": _events()}),
    "report_of_9.json": f'{{{SCHEMA}report/9"}}', "report_bare.json": f'{{{SCHEMA}report/1"}}',
    "receipt_of_9.json": f'{{{SCHEMA}receipt/9"}}', "receipt_wrong.json": f'{{{SCHEMA}receipt/1", "trials": "many"}}',
    "receipt_cut.json": f'{{{SCHEMA}receipt/1", "kept": ["fu', "receipt_stranger.json": _receipt(),
    "receipt_evil.json": _receipt(command=["sh", "-c", EVIL], notes=[EVIL], machine=EVIL, left=[EVIL]),
    "receipt_long.json": _receipt(command=["sh", "-c", "true " * 2000]), "receipt_gone.json": _receipt(folder="/no/at"),
    "receipt_outside.json": _receipt(speedup={"median": 9, "low": 1.5, "high": 3}),
    "receipt_other.json": _receipt(objective="beauty"), "receipt_unknown.json": _receipt(kept=["gold_plating"]),
}  # fmt: skip
_RECIPE = 'schema = "gobrrr.recipe/1"\n'
RECIPES = {
    "recipe_of_9.toml": 'schema = "gobrrr.recipe/9"\n',
    "recipe_empty.toml": "",
    "recipe_syntax.toml": "schema = = 1\n",
    "recipe_unknown.toml": f'{_RECIPE}[[remedies]]\nname = "gold_plating"\n',
    "recipe_twice.toml": _RECIPE + '[[remedies]]\nname = "fused_optimizer"\n' * 2,
    "recipe_evil.toml": f'{_RECIPE}[[remedies]]\nname = "\\u001b[31mx"\n',
    "recipe_field.toml": f'{_RECIPE}command = "rm"\n',
    "recipe_option.toml": f'{_RECIPE}[[remedies]]\nname = "loader_workers"\n[remedies.options]\nsocks = 2\n',
}


def lay(folder: Path) -> None:
    """Everything into an empty folder; a machine with made-up ceilings into its `cache`."""
    for file in STORED.iterdir():
        if file.name.endswith(".tar.gz"):
            with tarfile.open(file) as tar:
                tar.extractall(folder, **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
        else:
            shutil.copy2(file, folder)
    for name, text in (HOSTILE | RECIPES).items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "replay.sh").write_text(REPLAY)
    (folder / "replay.py").write_text("print('no torch here')\n")
    (folder / "badrun").mkdir()
    (folder / "badrun" / "rank0.journal").write_bytes(b"not a journal at all" * 20)
    _tar(folder / "mixed.tar", [("rank0.json", HOSTILE["evil.json"]), ("rank1.json", "{"), ("../rank2.json", "[")])
    _machines(folder)


def _tar(file: Path, members: Iterable[tuple[str, str]]) -> None:
    with tarfile.open(file, "w") as tar:
        for name, text in members:
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


def _machines(folder: Path) -> None:
    """Ceilings for the torch that is here and for that of the recordings: measuring them would take 20 seconds, and
    give others each time."""
    (folder / "cache").mkdir(mode=0o700)
    for version in {TORCH, torch_version(sys.executable)}:
        made = machine(fingerprint=fingerprint(probe(), version), torch_version=TORCH, repeats=5)
        data = msgspec.json.encode(made)
        (folder / "cache" / f"machine-{made.fingerprint}.json").write_bytes(data)
    (folder / "machine.json").write_bytes(data)
