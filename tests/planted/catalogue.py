"""The planted illnesses: which program has which, on which line, and how its cost is to be read.

Every entry is a folder with `sick.py`, a plain program, and `healthy.patch`, its mended lines as `diff -U1` writes
them; the twin is the patched program without its marks. The guilty lines carry such a mark, a trailing comment
`# <- BRRxxx`; no tool reads comments, so it gives nothing away. What else an illness has stands above the patch, a
field of `Illness` in each line (`kind: inference`; `also:` codes of other findings that name it), which `patch` skips.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
TWINS = HERE.parents[1] / ".gobrrr" / "planted"
"""Where the healthy twins are written."""
MARK = re.compile(r" *# <- (BRR\d{3})\b")
ILL_FROM = 1.3
"""Sick step over healthy step from which an illness counts: A/A runs on shared machines reach 1.1."""


@dataclass(frozen=True)
class Illness:
    """One planted program. `codes` are the findings that name its illness, the one to be expected first."""

    name: str
    codes: tuple[str, ...]
    kind: str = "training"
    """training: a step is an optimizer update; inference: a step is a top-level forward; backward: a
    backward pass, of a program without an optimizer."""
    statistic: str = "median"
    """mean where the cost falls on few steps: ends of epochs, rare samples."""
    conditional: str = ""
    """What the hardware must be like for this to be an illness; empty where it is one everywhere."""
    bytes_illness: bool = False
    """It costs bytes that grow with the steps; its time may not show."""
    needs: tuple[str, ...] = ()
    """Executables that the program cannot do without."""
    modules: tuple[str, ...] = ()
    """Packages that it imports beside torch and NumPy."""
    steps_in_one: int = 1
    """Steps of the sick program that one of its twin does."""
    num_steps: int | None = None
    """Fewer steps than the program's own default, for a quick look."""

    @property
    def code(self) -> str:
        """The code that is expected first."""
        return self.codes[0]

    def script(self, who: str) -> Path:
        """Path of the `sick` program, or of the `healthy` one, written now."""
        sick, twin = HERE / self.name / "sick.py", TWINS / self.name / "healthy.py"
        if who == "sick":
            return sick
        command = ["patch", "-F0", "-r", "-", "-o", "-", str(sick), str(sick.with_name("healthy.patch"))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or done.stderr.count("\n") != 1:  # it tells of lines that are not where they were
            raise ValueError(f"{self.name}: {done.stderr}")
        twin.parent.mkdir(parents=True, exist_ok=True)
        draft = twin.with_suffix(f".{os.getpid()}")  # another process may be reading the twin
        draft.write_text(MARK.sub("", done.stdout))
        return draft.replace(twin)

    def guilty_lines(self) -> tuple[int, ...]:
        """Line numbers in sick.py that carry the mark."""
        lines = self.script("sick").read_text().splitlines()
        return tuple(number for number, line in enumerate(lines, 1) if MARK.search(line))

    def absent(self) -> list[str]:
        """What the program needs and this machine lacks."""
        tools = [tool for tool in self.needs if shutil.which(tool) is None]
        return tools + [module for module in self.modules if importlib.util.find_spec(module) is None]

    def is_ill(self, ratio: float) -> bool:
        """Whether sick over healthy, as measured on this machine, is an illness here."""
        return self.bytes_illness or ratio >= ILL_FROM


def _illness(folder: Path) -> Illness:
    """Return the illness of a planted program: its codes are those of the marks, the rest stands above its patch."""
    head, _, _ = (folder / "healthy.patch").read_text().partition("--- sick.py")
    said: dict[str, Any] = dict(line.split(": ", 1) for line in head.splitlines())
    lists = {name: said[name].split() for name in ("needs", "modules") if name in said}
    marked = dict.fromkeys(MARK.findall((folder / "sick.py").read_text()))
    codes = [*marked, *said.pop("also", "").split()]
    return msgspec.convert(said | lists | {"name": folder.name, "codes": codes}, Illness, strict=False)


CATALOGUE = tuple(
    sorted(map(_illness, (sick.parent for sick in HERE.glob("*/sick.py"))), key=lambda i: (i.codes, i.name))
)
BY_NAME = {illness.name: illness for illness in CATALOGUE}
