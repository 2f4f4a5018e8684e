"""A recipe as a diff: the text at the place changes and nothing else, and patch(1) takes it."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from gobrrr.remedies import registry
from gobrrr.remedies.model import AddStatement, SetKeyword, SwitchOff
from gobrrr.remedies.patch import diff, patched

FUSED = SetKeyword(("AdamW",), "fused", "True")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("o = AdamW(p)", "o = AdamW(p, fused=True)"),
        ("o = torch.optim.AdamW(p, lr=1e-3)", "o = torch.optim.AdamW(p, lr=1e-3, fused=True)"),
        ("o = AdamW(\n    p,\n    lr=1,\n)", "o = AdamW(\n    p,\n    lr=1, fused=True,\n)"),
        ("o = AdamW(p, fused=False)", "o = AdamW(p, fused=True)"),
        ("o = AdamW()", "o = AdamW(fused=True)"),
        ("o = AdamW(p, fused=True)", "o = AdamW(p, fused=True)"),
        ("o = AdamW(p, fused=flag)", "o = AdamW(p, fused=flag)"),
        ("o = AdamW(p, **more)", "o = AdamW(p, **more)"),
        ("ü = 'ä'; o = AdamW('ö')  # é", "ü = 'ä'; o = AdamW('ö', fused=True)  # é"),
        ("a, b = AdamW(p), AdamW(q)", "a, b = AdamW(p, fused=True), AdamW(q, fused=True)"),
        ("o = SGD(p)", "o = SGD(p)"),
    ],
)
def test_a_keyword_is_set_where_it_can_be(before: str, after: str) -> None:
    assert patched(before, [FUSED]) == after
    ast.parse(after)


def test_a_keyword_may_ask_for_another_one() -> None:
    edit = SetKeyword(("DataLoader",), "persistent_workers", "True", only_if="num_workers")
    assert patched("DataLoader(d)", [edit]) == "DataLoader(d)"
    assert patched("DataLoader(d, num_workers=2)", [edit]) == "DataLoader(d, num_workers=2, persistent_workers=True)"


def test_a_switch_goes_off() -> None:
    assert patched("f(True); g(True)", [SwitchOff(("f",))]) == "f(False); g(True)"
    assert patched("f(x)", [SwitchOff(("f",))]) == "f(x)"


def test_a_statement_goes_behind_the_imports_once() -> None:
    edit = AddStatement("torch.set_flush_denormal(True)")
    once = patched('"""Doc."""\nimport os\nimport torch\n\nx = 1\n', [edit])
    assert once == '"""Doc."""\nimport os\nimport torch\n\ntorch.set_flush_denormal(True)\n\nx = 1\n'
    assert patched(once, [edit]) == once
    assert patched("import os\n", [edit]) == "import os\n"


def test_patch_takes_the_diff(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom torch.optim import AdamW\n\no = AdamW(p)\n# end")
    edits = [edit for name in registry.names() if (edit := registry.remedy(name).edit) is not None]
    text = diff([script, script, tmp_path / "missing.py"], edits, tmp_path)
    assert text.startswith("--- a/train.py\n+++ b/train.py\n") and text.count("+++") == 1
    wanted = patched(script.read_text(), edits)
    done = subprocess.run(["patch", "-p1"], cwd=tmp_path, input=text, text=True, capture_output=True)
    assert done.returncode == 0 and script.read_text() == wanted, done.stdout


def test_what_is_not_python_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def (")
    (tmp_path / "b.py").write_bytes(b"\xff\xfe AdamW(p)")
    assert diff([tmp_path / "a.py", tmp_path / "b.py"], [FUSED], tmp_path) == ""
