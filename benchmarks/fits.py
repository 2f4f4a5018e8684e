"""Is the peak of a batch that was not measured where `gobrrr fit` says, of programs of others?

    python -m benchmarks.fits [--only NAME ...] [--minutes 3] [--json FILE]

For each program of others: peaks at half, all and twice its batch size make the line; the peak at four times the size
is held against it. The programs need the packages of benchmarks/zoo/requirements.txt; those that cannot start are told.
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
from gobrrr.trial.statistics.scaling import bent

HERE = Path(__file__).parent
PROGRAMS = (
    *((f"models/{name}.py", ("--steps", "1000000")) for name in ("bert", "gpt2", "llama", "t5", "vit", "whisper")),
    *((f"zoo/programs/{name}.py", ()) for name in (
        "dcgan", "diffusers_unet", "peft_lora", "pyg_graphs", "lightning_images", "hf_trainer_images")),
    ("../examples/gpt/train.py", ("--steps", "1000000")),
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
        if not args.only or Path(name).stem in args.only:
            rows.append(row((HERE / name).resolve(), words, args.minutes))
            print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    errors = [abs(each["error"]) for each in rows if each.get("error") is not None]
    bars = {"programs": len(errors), "median": statistics.median(errors), "most": max(errors)} if errors else {}
    args.json.write_text(json.dumps({**stamp(), "bars": bars, "programs": rows}, indent=1) + "\n", encoding="utf-8")
    print(bars)
    return 0 if bars and bars["median"] <= 0.05 and bars["most"] <= 0.10 else 1


def row(program: Path, words: tuple[str, ...], minutes: float) -> dict[str, Any]:
    """The held-out peak of one program against the line through smaller ones."""
    source = Path(tempfile.mkdtemp(prefix="gobrrr-fits-"))
    for file in program.parent.glob("*.py"):
        shutil.copy2(file, source)
    command = [sys.executable, program.name, *words]
    told = io.StringIO()
    try:
        found = setting.find("batch", command, source)
        now = int(found.now)
        sizes = list(dict.fromkeys((max(1, now // 2), now, 2 * now)))
        wanted = sweeping.Wanted(found, tuple(map(str, (*sizes, 4 * now))), memory=1 << 34, seconds=60 * minutes,
                                 peaks_alone=True)  # fmt: skip
        swept = sweeping.sweep(command, source, source / "out", wanted, told)
    except (GobrrrError, ValueError) as error:
        return {"name": program.stem, "error": None, "why": str(error)}
    finally:
        shutil.rmtree(source / "out" / "arms", ignore_errors=True)
    peaks = {int(point.value): point.peak_bytes for point in swept.points if point.peak_bytes}
    law = bent([(size, float(peaks[size])) for size in sizes if size in peaks])
    shutil.rmtree(source, ignore_errors=True)
    if law is None or 4 * now not in peaks:
        return {"name": program.stem, "error": None, "why": "; ".join(point.failed for point in swept.points)}
    low, high = law.around(4 * now)
    return {"name": program.stem, "error": round(law.at(4 * now) / peaks[4 * now] - 1, 4),
            "inside": low <= peaks[4 * now] <= high,
            "peaks_mib": {size: round(peak / 2**20) for size, peak in sorted(peaks.items())}}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
