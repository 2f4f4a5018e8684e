"""Marks: what this user wrote on this machine is known again; with a byte changed, or from elsewhere, it is not."""

from __future__ import annotations

import json
import platform
import stat
from pathlib import Path

import msgspec
import pytest

from gobrrr.guard.model.verdict import Guarded
from gobrrr.system import files
from gobrrr.trial.race.tuning import Journal
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt.receipt import Receipt, Samples, Speedup, TrialResult
from gobrrr.trial.sandbox import signature

RECEIPT = Receipt(
    kept=("fused_optimizer",), speedup=Speedup(2, 1.5, 3), command=("python", "train.py", "--lr", "0.1"),
    folder="/srv/p",
    trials=(TrialResult(remedies=("fused_optimizer",), verdict="faster", speedup=Speedup(2, 1, 3), seconds=3),),
    guard=Guarded(verdict="exact"), step_ns=10, notes=("a",), versions={"torch": "2.13"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOBRRR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    receipts.write(receipts.marked(RECEIPT), tmp_path / "receipt.json")
    return tmp_path / "receipt.json"


def test_a_receipt_of_one_s_own_is_known_again_wherever_it_lies(file: Path, own_cache: Path) -> None:
    assert receipts.is_own(receipts.read(file))
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE((own_cache / signature.KEY).stat().st_mode) == 0o600
    assert receipts.is_own(receipts.read(file.rename(file.parent / "other.json")))


def test_every_byte_that_changes_what_is_read_takes_the_mark(file: Path) -> None:
    text = file.read_bytes()
    changed = 0
    for at in range(0, len(text), 7):
        file.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        try:
            read = receipts.read(file)
        except receipts.GobrrrError:
            continue
        if read != msgspec.json.decode(text, type=Receipt):
            changed += 1
            assert not receipts.is_own(read), (at, text[at - 20 : at + 20])
    assert changed > 20


@pytest.mark.parametrize(
    ("field", "value"),
    [("command", ["sh"]), ("folder", "/tmp"), ("kept", ["compile"]), ("step_ns", 11), ("mark", ""), ("mark", "00" * 32),
     ("mark", "é" * 64), ("notes", []), ("script_sha256", "0")],
)  # fmt: skip
def test_whatever_is_changed(file: Path, field: str, value: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    assert not receipts.is_own(receipts.read(file))


def test_another_user_or_machine_or_key_has_no_mark(
    file: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = receipts.read(file)
    with monkeypatch.context() as other:
        other.setattr(platform, "node", lambda: "elsewhere")
        assert not receipts.is_own(receipt)
    with monkeypatch.context() as other:
        other.setenv("GOBRRR_CACHE", str(own_cache.parent / "of another"))
        assert not receipts.is_own(receipt)
    assert receipts.is_own(receipt)
    (own_cache / signature.KEY).unlink()
    assert not receipts.is_own(receipt)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_know_is_none(file: Path, own_cache: Path, bits: int) -> None:
    (own_cache / signature.KEY).chmod(bits)
    assert not receipts.is_own(receipts.read(file))
    assert signature.of(b"x", "y") == ""


@pytest.mark.parametrize("key", [b"", b"short", b"x" * 33])
def test_nor_is_one_of_another_length(file: Path, own_cache: Path, key: bytes) -> None:
    files.write(own_cache / signature.KEY, key)
    assert signature.of(b"x", "y") == "" and not receipts.is_own(receipts.read(file))


def test_without_a_place_for_the_key_a_receipt_is_written_unmarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GOBRRR_CACHE", str(tmp_path / "file" / "below"))
    receipts.write(receipts.marked(RECEIPT), tmp_path / "r.json")
    assert receipts.read(tmp_path / "r.json").mark == "" and not receipts.is_own(receipts.read(tmp_path / "r.json"))


def trial(name: str) -> TrialResult:
    return TrialResult(
        remedies=(name,), verdict="faster", speedup=Speedup(2, 1, 3), samples=Samples((0, 1), (1, 1), (5, 4))
    )


def test_a_journal_believes_only_trials_that_were_measured_here_with_this_program(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    Journal(file, "train.py").append(trial("one"))
    Journal(file, "other.py").append(trial("two"))
    forged = msgspec.json.encode(trial("three"))
    stolen = file.read_bytes().split(b"\n")[0].replace(b'"one"', b'"four"')
    files.append(file, forged + b"\n" + stolen + b"\n" + b"{}\n" + b"[" * 5000 + b"\n" + b'{"cut')
    journal = Journal(file, "train.py")
    assert [found.remedies for found in journal.read()] == [("one",)]
    assert type(journal.read()[0]) is TrialResult and journal.foreign == 3
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_kind_is_part_of_the_mark() -> None:
    assert signature.holds(signature.of(b"x", "a"), b"x", "a")
    assert not signature.holds(signature.of(b"x", "a"), b"x", "b") and not signature.holds(
        signature.of(b"x", "a"), b"y", "a"
    )
