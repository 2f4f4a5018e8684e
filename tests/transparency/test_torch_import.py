"""Torch is imported as in a plain run: looked for, imported late, in vain, lazily; and is watched once it is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gobrrr.capture.process import launch
from gobrrr.capture.process.config import Config

SEEN = """
def shown(spec):
    loader = spec.loader
    return [spec.name, spec.origin, type(loader).__name__, loader.name, spec == importlib.util.find_spec('torch'),
            loader == importlib.util.find_spec('torch').loader, loader.is_package('torch'), repr(spec)]
def finders():
    return [getattr(f, '__name__', type(f).__name__) for f in sys.meta_path]
import importlib.util, json, os, sys
"""
LOOKS = "found = shown(importlib.util.find_spec('torch'))\n"
IMPORTS = "import torch\nfound += [repr(torch), repr(torch.__spec__), type(torch.__loader__).__name__, *finders()]\n"
LAZY = """
spec = importlib.util.find_spec('torch')
spec.loader = importlib.util.LazyLoader(spec.loader)
torch = importlib.util.module_from_spec(spec)
sys.modules['torch'] = torch
spec.loader.exec_module(torch)
found = [torch.__version__, *finders()]
"""
BY_HAND = """
spec = importlib.util.find_spec('torch')
torch = sys.modules['torch'] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torch)
found = [torch.__version__, sorted(vars(spec.loader)), *finders()]
"""
FAILS_ONCE = """
os.environ['FAILS'] = '1'
try:
    import torch
except ImportError as error:
    found = [str(error), 'torch' in sys.modules]
del os.environ['FAILS']
"""
IN_A_THREAD = """
import threading
found = []
threads = [threading.Thread(target=lambda: found.append(shown(importlib.util.find_spec('torch')))) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
OWN_FINDER = """
class Own:
    def find_spec(self, name, path=None, target=None):
        return None
sys.meta_path.insert(0, Own())
sys.meta_path.append(Own())
found = []
"""
RELOADS = "import importlib\ntorch = importlib.reload(torch)\nfound += shown(torch.__spec__)[:4] + finders()\n"
PROGRAMS = {
    "looks, then imports": LOOKS + IMPORTS, "looks twice and in threads": IN_A_THREAD + IMPORTS, "lazily": LAZY,
    "by hand": BY_HAND, "fails once": FAILS_ONCE + IMPORTS, "own finders": OWN_FINDER + IMPORTS,
    "reloads": LOOKS + IMPORTS + RELOADS,
}  # fmt: skip


def ran(program: str, folder: Path, watched: bool) -> tuple[Any, list[str]]:
    """What the program found with a torch too old to be watched, and the versions of torch that gobrrr came to see."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(
        "import os\nif 'FAILS' in os.environ:\n    raise ImportError('no library')\n__version__ = '1.0'\n"
    )
    (folder / "program.py").write_text(SEEN + program + "print(json.dumps(found))\n")
    env = launch.environment(Config(str(folder))) if watched else dict(os.environ)
    done = subprocess.run([sys.executable, "program.py"], cwd=folder, env=env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    seen = [json.loads(note.read_text())["torch"] for note in folder.glob("seen-*.json")]
    return json.loads(re.sub(r" at 0x\w+", "", done.stdout.decode().replace(str(folder), "FOLDER"))), seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_torch_is_imported_as_in_a_plain_run_and_watched(name: str, tmp_path: Path) -> None:
    plain, _ = ran(PROGRAMS[name], tmp_path / "plain", False)
    watched, seen = ran(PROGRAMS[name], tmp_path / "watched", True)
    assert watched == plain
    assert seen == ["1.0"]


def test_who_only_looks_is_not_watched(tmp_path: Path) -> None:
    plain, _ = ran(LOOKS, tmp_path / "plain", False)
    watched, seen = ran(LOOKS, tmp_path / "watched", True)
    assert watched == plain
    assert seen == [None]


def test_no_module_but_ours_is_there_at_the_first_line(tmp_path: Path) -> None:
    program = "found = sorted(name for name in sys.modules if name.split('.')[0] != 'gobrrr')\n"
    plain, _ = ran(program, tmp_path / "plain", False)
    watched, _ = ran(program, tmp_path / "watched", True)
    assert watched == plain


def test_who_goes_through_the_finders_meanwhile_skips_none(tmp_path: Path) -> None:
    """As another thread does that imports something at this moment."""
    program = """
on_the_way = iter(sys.meta_path)
next(on_the_way)
import torch
found = [list(on_the_way) == sys.meta_path, len(sys.meta_path)]
"""
    same, number = ran(program, tmp_path, True)[0]
    assert same
    assert number >= 3
