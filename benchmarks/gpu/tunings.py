"""`gobrrr tune` on two models with published speed-ups, what people pick by hand alone, and single remedies guarded."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.plants import PLANTS
from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting
from benchmarks.tuned import MODELS, _figures
from gobrrr.pipeline import tuning
from gobrrr.trial.race.candidates import Plan
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.receipt.receipt import Receipt

PICKS = ("compile", "bf16_autocast")
"""What people pick alone."""

HERE = Path(__file__).with_name("models")
PUBLISHED = {
    "gpt2_small": (3.5, "FlashAttention over eager attention, training, A100"),
    "bert_base": (1.70, "LightSeq2 over torch, both fp16, one GPU"),
}
"""Speed-up and what it was of: other GPUs, batches and years than here."""
REMEDIES = (
    ("compile_reduce_overhead", "small_batches"), ("matmul_precision", "fp32_products"),
)  # fmt: skip
"""CUDA graphs and TF32, each on the planted program that asks for it."""


def tuned(name: str, setting: Setting, seconds: float) -> Row:
    """A tuning of the whole."""
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{name}-") as scratch:
        return _told(_tune(_copied(name, Path(scratch)), seconds))


def alone(name: str, setting: Setting, seconds: float) -> Row:
    """The remedies that people pick, each alone against the program as written, in arms started anew."""
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{name}-") as scratch:
        source = Path(scratch) / "source"  # not above the arms: each takes a copy of all that lies there
        source.mkdir()
        command = _copied(name, source)
        program = Program((command[0], Path(command[1]).name, *command[2:]), source)
        referee = LiveReferee(program, Path(scratch) / "arms", seed=1, seconds=seconds / len(PICKS))
        return {"alone": {pick: _figures(referee.measure(Plan((), (pick,)))) for pick in PICKS}}


def guarded(remedy: str, plant: str, setting: Setting, seconds: float) -> Row:
    """One remedy on one planted program: what it brings and what the guard says."""
    source = next(each for each in PLANTS if each.name == plant).source("sick")
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{plant}-") as scratch:
        (Path(scratch) / "train.py").write_text(source, encoding="utf-8")
        command = [sys.executable, "train.py", "--steps", "1000000"]
        return {"remedy": remedy, "plant": plant, **_told(_tune(command, seconds, Path(scratch), (remedy,)))}


def _copied(name: str, place: Path) -> list[str]:
    """The command of a model, whose files now lie in `place`."""
    for file in (*HERE.glob("*.py"), MODELS / "corpus.py"):
        shutil.copy2(file, place)
    return [sys.executable, str(place / f"{name}.py"), "--steps", "1000000"]


def _tune(command: Sequence[str], seconds: float, place: Path | None = None, only: tuple[str, ...] = ()) -> Receipt:
    source = place or Path(command[1]).parent
    wishes = tuning.Wishes(seconds, named=only, only=only)
    return tuning.tune(
        [command[0], Path(command[1]).name, *command[2:]], source, source / "out", wishes, sys.stderr
    ).receipt


def _told(receipt: Receipt) -> dict[str, Any]:
    final = receipt.speedup
    return {
        "step_ns": receipt.step_ns, "kept": receipt.kept, "guard": receipt.guard.verdict, "notes": receipt.notes,
        "speedup": [final.median, final.low, final.high] if final else None,
        "trials": [
            {"remedies": t.remedies, "onto": t.onto, "purpose": t.purpose, "verdict": t.verdict, "reason": t.reason,
             "speedup": [t.speedup.median, t.speedup.low, t.speedup.high] if t.speedup else None,
             "guard": t.guard.verdict, "reasons": t.guard.reasons}
            for t in receipt.trials
        ],
    }  # fmt: skip
