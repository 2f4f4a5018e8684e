"""Calls through a kept method: we step aside before anything is compiled, and out of nobody's way."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import sys, torch
from gobrrr.capture.hooks.lookup import KeptCalls

class Theirs:
    asked = []
    def find_spec(self, name, path=None, target=None):
        Theirs.asked.append(name)

assert "torch._dynamo" not in sys.modules
sys.meta_path.insert(0, Theirs())
before = list(sys.meta_path)
kept = KeptCalls(lambda module, frame: None, lambda error: None)
kept.begin()
assert kept.on
import torch._dynamo
assert Theirs.asked.count("torch._dynamo") == 1 and not kept.on
assert sys.meta_path == before, "nothing of ours is left to see"
kept.begin()
assert not kept.on
kept.remove()
assert kept not in sys.meta_path
"""


def test_the_programs_own_finders_are_asked_for_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
