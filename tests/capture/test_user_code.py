"""Which files are the user's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gobrrr.capture.source.user_code import UserFiles


@pytest.mark.parametrize(("main", "is_user"), [("elsewhere/train.py", False), ("packages/train.py", True)])
def test_what_pip_put_into_a_folder_on_the_path_is_a_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: str, is_user: bool
) -> None:
    """`pip install --target`, unless the program itself lies there."""
    folder = tmp_path / "packages"
    (folder / "frames-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "own"), str(folder)])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / main), raising=False)
    files = UserFiles()
    assert files.is_user(str(folder / "frames" / "rows.py")) is is_user
    assert files.is_user(str(tmp_path / "own" / "rows.py"))
