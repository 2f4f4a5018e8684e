"""The published figures of efficient deep learning, measured again on this machine: every experiment, by its name."""

from __future__ import annotations

import difflib
from importlib import import_module
from pkgutil import walk_packages

from gobrrr.errors import GobrrrError
from gobrrr_lab import experiments
from gobrrr_lab.measure.experiment import CHAPTERS, Experiment


def load() -> dict[str, Experiment]:
    """All experiments by name, in the order of their numbers: one in each file of `experiments/`. Imports no torch."""
    found = {}
    for each in walk_packages(experiments.__path__, f"{experiments.__name__}."):
        if not each.ispkg:
            found[each.name.rpartition(".")[2]] = import_module(each.name).EXPERIMENT
    return dict(sorted(found.items(), key=lambda item: item[1].number))


def chosen(words: list[str]) -> dict[str, Experiment]:
    """Return the experiments of these names, numbers and chapters; raise GobrrrError for any other word."""
    known, picked = load(), set()
    for word in words:
        same = {name for name, one in known.items() if word in (name, str(one.number), one.chapter)}
        if not same:
            near = difflib.get_close_matches(word, [*known, *CHAPTERS], n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "gobrrr lab lists them all"
            raise GobrrrError(f"there is no experiment or chapter '{word}'", hint)
        picked |= same
    return {name: one for name, one in known.items() if name in picked}
