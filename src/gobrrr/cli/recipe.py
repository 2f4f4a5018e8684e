"""A recipe at a run: read and checked before the program starts, and afterwards what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from platform import python_version

from gobrrr.machine.measure.command import torch_version
from gobrrr.machine.probe.fingerprint import of_hardware
from gobrrr.machine.probe.system_probe import probe
from gobrrr.pipeline.tuning import script_digest
from gobrrr.remedies import registry
from gobrrr.remedies.mechanism.applying import APPLIED
from gobrrr.system.escape import plain
from gobrrr.trial.receipt import recipe as recipes
from gobrrr.trial.receipt.recipe import Fits, Recipe


def read(file: Path) -> Recipe:
    """The recipe, with every remedy known and none in conflict. Raises GobrrrError."""
    found = recipes.read(file)
    for ingredient in found.remedies:
        registry.check_options(registry.remedy(ingredient.name), ingredient.options, f"{file}: ")
    registry.composed(found.names)
    return found


def misfits(recipe: Recipe, command: Sequence[str]) -> list[str]:
    """Return what has changed since the recipe was proven, harmless to print; the program runs all the same."""
    here = Fits(torch=torch_version() or "", python=python_version(), fingerprint=of_hardware(probe()),
                script_sha256=script_digest(command, Path.cwd()))  # fmt: skip
    return [plain(said) for said in recipes.misfits(recipe, here)]


def outcome(recipe: Recipe, folder: Path) -> list[str]:
    """One sentence: which remedies took hold, and one for those that did not."""
    file = folder / APPLIED
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    held = dict(line.split("\t", 1) for line in lines if "\t" in line)
    done = [f"{name} ({plain(held[name])})" if held[name] else name for name in recipe.names if name in held]
    missing = [name for name in recipe.names if name not in held]
    said = [f"recipe: {', '.join(done)} applied"] if done else []
    return said + ([f"recipe: {', '.join(missing)} never took hold in this program"] if missing else [])
