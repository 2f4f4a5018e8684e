"""A program's results and surroundings, written down as one JSON file at its very end.

Import it before torch: its exit handler then runs after any that came with torch, so that `after` shows what a watcher
leaves behind, and the rest what it shows while it is still there.
"""

from __future__ import annotations

import atexit
import json
import os
import sys

from seen import digest, instruments, of_model, of_optimizer, process, randomness, seams, torch_flags


class Fingerprint:
    """Collects under names; `argv[1]` names the file that it is written to when the interpreter leaves."""

    def __init__(self) -> None:
        import random

        random.seed(0)
        self._found: dict[str, object] = {}
        self._path = os.path.abspath(sys.argv[1]) + (f".{os.environ['RANK']}" if "RANK" in os.environ else "")
        self.losses: list[object] = []
        atexit.register(self._write)

    def add(self, name: str, value: object) -> None:
        """Keep a value that JSON can hold."""
        self._found[name] = value

    def end(self, *models_and_optimizers: object) -> None:
        """The program's results, and its surroundings while it still runs."""
        for number, thing in enumerate(models_and_optimizers):
            kind = of_model if hasattr(thing, "named_parameters") else of_optimizer
            self.add(f"{type(thing).__name__}{number}", kind(thing))
        self.add("losses", digest(self.losses))
        self.add("num_losses", len(self.losses))
        self.add("random", randomness())
        self.add("flags", torch_flags())
        self.add("process", process())

    def _write(self) -> None:
        self.add(
            "after", {"seams": seams(), "instruments": instruments(), "process": process(), "flags": torch_flags()}
        )
        with open(self._path, "w") as file:
            json.dump(self._found, file)


fingerprint = Fingerprint()
