"""Is the peak of a batch that was not measured where `gobrrr fit` says, of programs of others?

    python -m benchmarks.fits [--only NAME ...] [--minutes 3] [--json FILE]

For each program of others: `fit` measures half, all and twice its batch size, and larger ones where these lie on no
line; the peak at twice the largest is held against its line: `error` where the C library gives freed memory back,
`as_it_is` where it keeps it. The programs need the packages of benchmarks/zoo/requirements.txt; those that cannot start
are told.
"""

from __future__ import annotations

import io
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.varied import STEPS, measured
from gobrrr.pipeline import sweeping
from gobrrr.trial.edit.setting import Setting

PROGRAMS = (
    *((f"models/{name}.py", STEPS) for name in ("bert", "gpt2", "llama", "t5", "vit", "whisper")),
    *((f"zoo/programs/{name}.py", ()) for name in (
        "diffusers_unet", "peft_lora", "pyg_graphs", "lightning_images", "hf_trainer_images")),
    ("../examples/gpt/train.py", STEPS), ("proving/gan/program.py", ()),
    ("proving/nanogpt/program.py", ()), ("proving/trainer/program.py", ()),
)  # fmt: skip


def main() -> int:
    """Measure all and print the table; 0 where the median error is at most 5 % and each at most 10 %."""
    found = measured(__doc__, "fits", PROGRAMS, row, bars)
    return 0 if found and all(each["median"] <= 0.05 and each["most"] <= 0.10 for each in found.values()) else 1


def bars(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return programs, median and largest error of each kind."""
    found = {}
    for kind in ("error", "as_it_is"):
        errors = [abs(each[kind]) for each in rows if kind in each]
        if errors:
            found[kind] = {"programs": len(errors), "median": statistics.median(errors), "most": max(errors)}
    return found


def row(source: Path, command: list[str], found: Setting, seconds: float) -> dict[str, Any]:
    """Return the held-out peak of one program against the line through smaller ones."""
    now, told = int(found.now), io.StringIO()
    sizes = list(dict.fromkeys((max(1, now // 2), now, 2 * now)))
    wanted = sweeping.Wanted(found, tuple(map(str, sizes)), memory=1 << 40, seconds=seconds, peaks_alone=True)
    swept = sweeping.sweep(command, source, source / "out", wanted, told)
    held = 2 * max(int(point.value) for point in swept.points if point.peak_bytes)
    beyond = sweeping.sweep(command, source, source / "held", wanted._replace(values=(str(held),)), told)
    points, law = (*swept.points, *beyond.points), swept.peak_law
    peaks = {int(point.value): point.peak_bytes for point in points if point.peak_bytes}
    if law is None or held not in peaks or not (swept.fit and swept.fit.law and beyond.fit and beyond.fit.as_it_is):
        return {"why": "; ".join(point.failed for point in points)}
    low, high = law.around(held)
    return {"held": held, "error": round(law.at(held) / peaks[held] - 1, 4),
            "as_it_is": round(swept.fit.law.at(held) / (beyond.fit.as_it_is[0].peak_bytes or 1) - 1, 4),
            "keeps": round(swept.fit.keeps, 3), "inside": low <= peaks[held] <= high,
            "peaks_mib": {size: round(peak / 2**20) for size, peak in sorted(peaks.items())}}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
