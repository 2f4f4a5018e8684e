"""The tests of tests/gpu, and the ceilings that gobrrr measures beside what the device's data sheet says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import ROOT, Setting, run
from gobrrr.machine.model.peaks import peak_of

MOST, LEAST = 1.05, 0.3
"""Shares of the data sheet beyond which a ceiling, or the sheet's row, is in doubt."""


def tests(setting: Setting) -> Row:
    """pytest on tests/gpu: outcome by test."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "junit.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", f"--junitxml={out}", "tests/gpu"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if not out.exists():
            raise RuntimeError(f"pytest left with {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
        outcomes = {case.get("name", ""): _outcome(case) for case in ElementTree.parse(out).iter("testcase")}
    return {"outcomes": outcomes, "told": "" if done.returncode == 0 else done.stdout[-6000:]}


def _outcome(case: ElementTree.Element) -> str:
    return next((tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "passed")


def sheet(setting: Setting) -> Row:
    """`gobrrr machine`, measured anew on a device, against the sheet."""
    fresh = ["--refresh"] if setting.real else []
    machine = json.loads(run(["-m", "gobrrr", "machine", "--json", *fresh]))
    return {"machine": machine, "ceilings": against_the_sheet(machine)}


def against_the_sheet(machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Per ceiling of the device: measured, of the sheet, their ratio, and whether it is in doubt. Units are FLOP/s, and
    bytes/s for `copy`; sheet and share are null where the sheet has no such unit, or there is none."""
    device = machine.get("device")
    if device is None:
        return []
    peak = peak_of(device["name"])
    measured = {dtype: figure["median"] for dtype, figure in device["matmul"].items()}
    listed = {dtype: peak.flop_rate(dtype) if peak else None for dtype in measured}
    measured["copy"], listed["copy"] = device["copy"]["median"], peak.byte_rate if peak else None
    rows = []
    for name, value in measured.items():
        rate = listed[name]
        share = value / rate if rate else None
        rows.append({"name": name, "measured": value, "sheet": rate, "share": share, "doubt": doubt(share)})
    return rows


def doubt(share: float | None) -> str:
    """Why this share of a data sheet cannot be right as it stands; empty where it can."""
    if share is None:
        return "no sheet"
    return "above the sheet" if share > MOST else "far below the sheet" if share < LEAST else ""
