"""How is a program drawn? From pieces, by its seed alone, into one skeleton.

A piece is named text for some of the skeleton's hooks. Of each slot (`SLOTS`) a program has one piece, and it has some
of the slot "extra" beside them. To add a piece, call `piece(slot, name, hook="code", ...)` in a file of `pieces/`: what
the code may use is what the skeleton shows. Code must not rebind names of the skeleton from within a hook (the loop may
be in a function); it changes lists and dicts instead, and says what it finds with `say(...)`.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import textwrap
import zlib
from dataclasses import dataclass, field

SKELETON = """\
{start}
import contextlib, gc, os, random, signal, sys, threading, time, warnings
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from seen import digest, of_model, of_optimizer, randomness

STEPS = {steps}


def say(*words):
    print(*words)


def tell(when):
    say(when, losses[-1:], digest(losses), digest(model.state_dict()), of_optimizer(optimizer)["state"], randomness())


torch.manual_seed(1)
random.seed(1)
np.random.seed(1)
losses = []
{net}
{data}
{optimizer}

if __name__ == "__main__":
    {setup}
    {loop}
    {end}
    tell("end")
    say(of_model(model), of_optimizer(optimizer))
    {ending}
"""
BODY = """\
{before}
{around}
losses.append(loss.item().hex())
{after}
if k % 40 == 0:
    tell(k)
"""
SLOTS = ("net", "data", "optimizer", "step", "loop", "ending")
HOOKS = ("start", "net", "data", "optimizer", "setup", "before", "around", "step", "after", "loop", "end", "ending")
EXTRA = "extra"
EXTRAS = (3, 6)
"""Fewest and most of them in one program."""


@dataclass(frozen=True)
class Piece:
    """Text for some hooks. `around` is a `with` statement's expression, all others are statements."""

    slot: str
    name: str
    weight: float
    code: dict[str, str] = field(hash=False)


PIECES: dict[str, Piece] = {}


def piece(slot: str, name: str, *, weight: float = 1.0, **code: str) -> None:
    """Add a piece; `weight` below 1 for those that take long. The first of each slot is its plainest."""
    assert name not in PIECES, f"two pieces are called {name}"
    assert "," not in name, "a command names pieces between commas"
    assert not code.keys() - set(HOOKS), f"{name}: no such hook: {code.keys() - set(HOOKS)}"
    PIECES[name] = Piece(slot, name, weight, {hook: textwrap.dedent(text).strip("\n") for hook, text in code.items()})


def of_slot(slot: str) -> list[Piece]:
    """All pieces of one slot, in the order of their writing."""
    _load()
    return [found for found in PIECES.values() if found.slot == slot]


def _load() -> None:
    from tests.fuzz import pieces

    for module in pkgutil.iter_modules(pieces.__path__):
        importlib.import_module(f"tests.fuzz.pieces.{module.name}")


@dataclass(frozen=True)
class Program:
    """A drawn program: the names of its pieces, its number of steps, and how soon gobrrr's windows open, in ms."""

    pieces: tuple[str, ...]
    steps: int = 260
    plain_ms: int = 20

    def source(self) -> str:
        """Its text."""
        _load()
        chosen = [PIECES[name] for name in self.pieces]
        named = {found.slot for found in chosen}
        chosen = [of_slot(slot)[0] for slot in SLOTS if slot not in named] + chosen
        chosen.sort(key=lambda found: [*SLOTS, EXTRA].index(found.slot))
        code = {hook: [p.code[hook] for p in chosen if hook in p.code] for hook in HOOKS}
        body = fill(BODY, {**code, "around": [_within(code["around"], "\n".join(code["step"]))]})
        loop = [fill(text, {"body": [body]}) for text in code["loop"]]
        return fill(SKELETON.replace("{steps}", str(self.steps)), {**code, "loop": loop})

    def without(self, name: str) -> Program:
        """The same with one piece less."""
        return Program(tuple(n for n in self.pieces if n != name), self.steps, self.plain_ms)


def _within(managers: list[str], step: str) -> str:
    return f"with {', '.join(managers)}:\n{textwrap.indent(step, '    ')}" if managers else step


def fill(template: str, code: dict[str, list[str]]) -> str:
    """Lines that are a hook alone, replaced by its code in the same column."""
    lines = []
    for line in template.splitlines():
        hook = re.fullmatch(r"( *)\{(\w+)\}", line)
        if hook is None:
            lines.append(line)
        else:
            lines += [textwrap.indent(text, hook[1]) for text in code[hook[2]] if text]
    return "\n".join(lines) + "\n"


def draw(seed: int) -> Program:
    """The program of this seed. One piece comes by turns, so that as many seeds as there are pieces meet them all."""
    chance = random.Random(f"program {seed}")
    turn = _turns()[seed % len(PIECES)]
    names = [turn.name if turn.slot == slot else _one(chance, of_slot(slot)).name for slot in SLOTS]
    extras = of_slot(EXTRA)
    drawn = [turn] if turn.slot == EXTRA else []
    wanted = chance.randint(*EXTRAS)
    while len(drawn) < wanted:
        found = _one(chance, extras)
        drawn += [found] if found not in drawn else []
    names += [found.name for found in drawn]
    return Program(tuple(names), chance.choice((180, 260, 340)), chance.choice((5, 20, 60)))


def _turns() -> list[Piece]:
    """All pieces, well mixed, in an order that stays as long as the pieces do."""
    _load()
    return sorted(PIECES.values(), key=lambda found: zlib.crc32(found.name.encode()))


def _one(chance: random.Random, pieces: list[Piece]) -> Piece:
    return chance.choices(pieces, [found.weight for found in pieces])[0]
