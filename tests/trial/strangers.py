"""Packages of somebody else's with remedies, found through their entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.remedies import registry


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, source: str, **classes: str) -> None:
    """A package of one module, here and in child processes. `classes`: entry points below its name, and their class."""
    site = folder / "site"
    about = site / f"{package}-1.dist-info"
    about.mkdir(parents=True)
    (site / f"{package}.py").write_text(source)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    points = "".join(f"{package}.{name} = {package}:{kind}\n" for name, kind in classes.items())
    (about / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT}]\n{points}")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
