"""`gobrrr tune` on the twelve in fp32, single remedies and edits under the guard."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import twelve
from benchmarks.gpu.planting import promise
from benchmarks.gpu.plants import PLANTS
from benchmarks.gpu.rows import Row
from benchmarks.gpu.setting import Setting, run
from gobrrr.errors import GobrrrError
from gobrrr.pipeline import tuning
from gobrrr.trial.receipt.receipt import Receipt, TrialResult

ENDLESS = ("--steps", "1000000")
GREEN = ("exact", "equivalent", "bounded")
REMEDIES = (
    ("compile_reduce_overhead", "small_batches"), ("matmul_precision", "fp32_products"),
    ("pin_memory", "unpinned_loader"), ("fused_optimizer", "optimizer_loop"), ("bf16_autocast", "fp32_products"),
)  # fmt: skip
"""CUDA graphs, TF32 and others, each on the planted program that asks for it."""
EDITS = (
    ("float16_autocast", "gpt2_small"), ("by hand", "resnet_half"), ("prefetch", "photo_vit"),
    ("bf16_autocast", "gpt2_small"),
)  # fmt: skip
"""Edits to prove: float16 with a scaler, channels_last, prefetch, bfloat16. The guard refuses a padded vocabulary:
its weights have another shape."""
ACCEPTED = {"resnet_half": "precision"}


def tuned(name: str, setting: Setting, seconds: float) -> Row:
    """A tuning of the whole, from fp32 without TF32."""
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{name}-") as scratch:
        script = twelve.BY_NAME[name].put(Path(scratch), "fp32")
        row = _in_time(lambda: _told(_tune([sys.executable, str(script), *ENDLESS], seconds)), setting)
        sure = row["speedup"] is not None and row["speedup"][1] > 1 and row["guard"] in GREEN
        return {"tuned": name, "counts": setting.real, "confirmed": sure, **row}


def guarded(remedy: str, plant: str, setting: Setting, seconds: float) -> Row:
    """One remedy on one program: what it brings and what the guard says."""
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{plant}-") as scratch:
        script = Path(scratch) / "train.py"
        script.write_text(next(each for each in PLANTS if each.name == plant).source("sick"), encoding="utf-8")
        command = [sys.executable, str(script), *ENDLESS]
        told = _in_time(lambda: _told(_tune(command, seconds, (remedy,))), setting)
        return {"remedy": remedy, "plant": plant, "counts": setting.real, **told}


def proven(edit: str, name: str, setting: Setting, seconds: float) -> Row:
    """One edit of one of the twelve through `gobrrr prove`: the cure by hand, or another of its cures."""
    plant = twelve.BY_NAME[name]
    accept, fix = next(((each[1], each[3]) for each in plant.others if each[0] == edit), ("", plant.fix))
    accept = ACCEPTED.get(name, accept)
    with tempfile.TemporaryDirectory(prefix=f"gobrrr-{name}-") as scratch:
        source, edited = Path(scratch) / "source", Path(scratch) / "edited"
        plant.put(source, "sick"), plant.put(edited, "mended", fix)
        words = ["-m", "gobrrr", "prove", "--json", "--with", str(edited), "--minutes", f"{seconds / 60:.3f}"]
        words += [*(["--accept", accept] if accept else []), "train.py", *ENDLESS]

        def proof() -> Row:
            trial = json.loads(run(words, source, codes=(0, 1, 2, 3)))["trials"][-1]
            speed, guard = trial["speedup"], trial["guard"]
            return {"verdict": trial["verdict"], "reason": trial["reason"], "guard": guard["verdict"],
                    "reasons": guard["reasons"],
                    "speedup": [speed["median"], speed["low"], speed["high"]] if speed else None}  # fmt: skip

        return {"edit": edit, "plant": name, "counts": setting.real, **_in_time(proof, setting)}


def _in_time(do: Callable[[], Row], setting: Setting) -> Row:
    """The row; where a CPU's few seconds did not do for it, one that says so."""
    try:
        return do()
    except (GobrrrError, RuntimeError) as error:
        if setting.real or "no time is left" not in str(error):
            raise
        return {
            "kept": [],
            "speedup": None,
            "guard": "unverified",
            "trials": [],
            "notes": [],
            "spent": " ".join(str(error)[-200:].split()),
        }


def _tune(command: Sequence[str], seconds: float, only: tuple[str, ...] = ()) -> Receipt:
    source = Path(command[1]).parent
    wishes = tuning.Wishes(seconds, named=only, only=only)
    return tuning.tune(
        [command[0], Path(command[1]).name, *command[2:]], source, source / "out", wishes, sys.stderr
    ).receipt


def _told(receipt: Receipt) -> dict[str, Any]:
    final = receipt.speedup
    return {
        "step_ns": receipt.step_ns, "kept": receipt.kept, "guard": receipt.guard.verdict, "notes": receipt.notes,
        "speedup": [final.median, final.low, final.high] if final else None, "seconds": receipt.seconds,
        "trials": [
            {"remedies": t.remedies, "onto": t.onto, "purpose": t.purpose, "verdict": t.verdict, "reason": t.reason,
             "speedup": [t.speedup.median, t.speedup.low, t.speedup.high] if t.speedup else None,
             "guard": t.guard.verdict, "reasons": t.guard.reasons}
            for t in receipt.trials
        ],
        "promises": _promises(receipt.trials),
    }  # fmt: skip


def _promises(trials: Iterable[TrialResult]) -> list[dict[str, Any]]:
    """Per cure what was promised and what came, by its last trial."""
    found = {}
    for trial in trials:
        saving, came = trial.predicted, trial.realised_ns
        if saving and saving.ceiling_ns > 0 and came is not None:
            made = (saving.low_ns, saving.expected_ns, saving.ceiling_ns)
            found[trial.remedies] = promise(" + ".join(trial.remedies), made, came)
    return list(found.values())
