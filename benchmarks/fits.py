"""Is the peak of a batch that was not measured where `gobrrr fit` says, of programs of others?

    python -m benchmarks.fits [--only NAME ...] [--minutes 3] [--json FILE]

For each program of others: `fit` measures half, all and twice its batch size, and larger ones where these lie on no
line; the peak at twice the largest is held against its line: `error` where the C library gives freed memory back,
`as_it_is` where it keeps it. The programs need the packages of benchmarks/zoo/requirements.txt; those that cannot start
are told.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.stamp import stamp
from gobrrr.errors import GobrrrError
from gobrrr.pipeline import sweeping
from gobrrr.trial.edit import setting

HERE = Path(__file__).parent
PROGRAMS = (
    *((f"models/{name}.py", ("--steps", "1000000")) for name in ("bert", "gpt2", "llama", "t5", "vit", "whisper")),
    *((f"zoo/programs/{name}.py", ()) for name in (
        "diffusers_unet", "peft_lora", "pyg_graphs", "lightning_images", "hf_trainer_images")),
    ("../examples/gpt/train.py", ("--steps", "1000000")), ("proving/gan/program.py", ()),
    ("proving/nanogpt/program.py", ()), ("proving/trainer/program.py", ()),
)  # fmt: skip


def main() -> int:
    """Measure all and print the table; 0 where the median error is at most 5 % and each at most 10 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--json", type=Path, default=HERE / "results" / f"fits-{stamp()['date']}.json")
    args = parser.parse_args()
    rows = []
    for name, words in PROGRAMS:
        if not args.only or any(word in name for word in args.only):
            rows.append(row((HERE / name).resolve(), words, args.minutes))
            print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    bars = {}
    for kind in ("error", "as_it_is"):
        errors = [abs(each[kind]) for each in rows if each.get(kind) is not None]
        if errors:
            bars[kind] = {"programs": len(errors), "median": statistics.median(errors), "most": max(errors)}
    args.json.write_text(json.dumps({**stamp(), "bars": bars, "programs": rows}, indent=1) + "\n", encoding="utf-8")
    print(bars)
    return 0 if bars and all(each["median"] <= 0.05 and each["most"] <= 0.10 for each in bars.values()) else 1


def row(program: Path, words: tuple[str, ...], minutes: float) -> dict[str, Any]:
    """The held-out peak of one program against the line through smaller ones."""
    name = program.stem if program.stem not in ("train", "program") else f"{program.parent.name}/{program.stem}"
    source = Path(tempfile.mkdtemp(prefix="gobrrr-fits-"))
    for file in program.parent.glob("*.py"):
        shutil.copy2(file, source)
    command = [sys.executable, program.name, *words]
    told = io.StringIO()
    try:
        found = setting.find("batch", command, source)
        now = int(found.now)
        sizes = list(dict.fromkeys((max(1, now // 2), now, 2 * now)))
        wanted = sweeping.Wanted(found, tuple(map(str, sizes)), memory=1 << 34, seconds=60 * minutes, peaks_alone=True)
        swept = sweeping.sweep(command, source, source / "out", wanted, told)
        held = 2 * max(int(point.value) for point in swept.points if point.peak_bytes)
        beyond = sweeping.sweep(command, source, source / "held", wanted._replace(values=(str(held),)), told)
    except (GobrrrError, ValueError) as error:
        return {"name": name, "error": None, "why": str(error)}
    finally:
        shutil.rmtree(source, ignore_errors=True)
    points, law = (*swept.points, *beyond.points), swept.peak_law
    peaks = {int(point.value): point.peak_bytes for point in points if point.peak_bytes}
    if law is None or held not in peaks or not (swept.fit and swept.fit.law and beyond.fit and beyond.fit.as_it_is):
        return {"name": name, "error": None, "why": "; ".join(point.failed for point in points)}
    low, high = law.around(held)
    return {"name": name, "held": held, "error": round(law.at(held) / peaks[held] - 1, 4), 
            "as_it_is": round(swept.fit.law.at(held) / beyond.fit.as_it_is - 1, 4),
            "keeps": round(swept.fit.keeps, 3), "inside": low <= peaks[held] <= high,
            "peaks_mib": {size: round(peak / 2**20) for size, peak in sorted(peaks.items())}}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
