"""Where a program has its batch size, and the edit that gives it another."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.errors import GobrrrError
from gobrrr.trial.edit.setting import Setting, find

OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument('-b', '--batch-size', type=int, default=64)\n"


def found(tmp_path: Path, source: str, *words: str, name: str = "batch") -> Setting:
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    return find(name, ["python", "train.py", *words], tmp_path)


@pytest.mark.parametrize(
    ("words", "edited"),
    [
        (("--batch-size", "8", "--lr", "1"), ("--batch-size", "7", "--lr", "1")),
        (("--train_batch_size=8",), ("--train_batch_size=7",)),
        (("data.batch_size=8", "lr=1"), ("data.batch_size=7", "lr=1")),
        (("--out", "ckpt_{}.pt", "--bs", "8"), ("--out", "ckpt_{}.pt", "--bs", "7")),
    ],
)
def test_an_argument_of_the_command_line_goes_first(
    tmp_path: Path, words: tuple[str, ...], edited: tuple[str, ...]
) -> None:
    setting = found(tmp_path, "batch_size = 3\n", *words)
    assert setting.now == "8"
    assert setting.edit("7", tmp_path).args == edited


def test_an_option_that_is_left_at_its_default_is_added(tmp_path: Path) -> None:
    setting = found(tmp_path, OPTION, "--lr", "1")
    assert (setting.now, setting.edit("7", tmp_path).args) == ("64", ("--lr", "1", "--batch-size", "7"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("batch_size = 12  # ä\nx = batch_size\n", "batch_size = 7  # ä\nx = batch_size\n"),
        ("a, batch_size = 'ä', 12\n", "a, batch_size = 'ä', 7\n"),
        ("def make(x, bs=12, *, y=1): pass\n", "def make(x, bs=7, *, y=1): pass\n"),
        ("config = {'batch_size': 12}\n", "config = {'batch_size': 7}\n"),
        ("class C:\n    batch_size: int = 12\n", "class C:\n    batch_size: int = 7\n"),
        ("args = TrainingArguments(per_device_train_batch_size=12, per_device_eval_batch_size=99)\n",
         "args = TrainingArguments(per_device_train_batch_size=7, per_device_eval_batch_size=99)\n"),
        ("a = DataLoader(d, batch_size=12)\ntest_loader = DataLoader(d, batch_size=1000)\n",
         "a = DataLoader(d, batch_size=7)\ntest_loader = DataLoader(d, batch_size=1000)\n"),
    ],
)  # fmt: skip
def test_a_number_of_the_source_is_replaced_and_nothing_else(tmp_path: Path, before: str, after: str) -> None:
    setting = found(tmp_path, before)
    assert setting.now == "12"
    assert setting.edit("7", tmp_path).files == {"train.py": after.encode()}


def test_a_module_beside_the_script_is_searched_too(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("batch_size = 5\n")
    setting = found(tmp_path, "import config\n")
    assert setting.edit("7", tmp_path).files == {"config.py": b"batch_size = 7\n"}


def test_any_setting_can_be_named(tmp_path: Path) -> None:
    setting = found(tmp_path, "loader = DataLoader(d, num_workers=0)\n", name="num-workers")
    assert setting.edit("2", tmp_path).files == {"train.py": b"loader = DataLoader(d, num_workers=2)\n"}
    text = found(tmp_path, "precision = '32'\n", name="precision")
    assert text.edit("bf16", tmp_path).files == {"train.py": b"precision = 'bf16'\n"}


def test_what_is_not_there_or_means_two_things_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GobrrrError, match="no batch was found"):
        found(tmp_path, "x = 1\n")
    with pytest.raises(GobrrrError, match=r"12 at train.py:1, 100 at train.py:2"):
        found(tmp_path, "a = DataLoader(d, batch_size=12)\nb = DataLoader(d, batch_size=100)\n")


def test_checkpointing_is_a_setting_of_every_training(tmp_path: Path) -> None:
    train = "import torch\nmodel = make()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    setting = found(tmp_path, train, name="checkpointing")
    assert setting.now == "none"
    assert not setting.edit("none", tmp_path).files
    assert b"checkpoint_blocks(model)" in (setting.edit("all", tmp_path).files["train.py"] or b"")
    assert b"0.5 * len(found)" in (setting.edit("0.5", tmp_path).files["train.py"] or b"")
    with pytest.raises(GobrrrError, match="cannot be half"):
        setting.edit("half", tmp_path)
    with pytest.raises(GobrrrError, match="no statement that makes an optimizer"):
        found(tmp_path, "import torch\n", name="checkpointing")
