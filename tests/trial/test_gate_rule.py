"""A gate as it is written, and its value as it is read: of lines and files that the program makes as it likes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gobrrr.errors import GobrrrError
from gobrrr.trial.gate.rule import parse


@pytest.mark.parametrize(
    ("text", "name", "falls", "allowed", "relative"),
    [
        ("accuracy >= -0.5%", "accuracy", False, -0.5, True),
        ("val acc@1>=-0.5", "val acc@1", False, -0.5, False),
        ("perplexity <= +1%", "perplexity", True, 1.0, True),
        ("wer <= 2", "wer", True, 2.0, False),
        ("bleu >= 0", "bleu", False, 0.0, False),
    ],
)
def test_a_rule_is_read(text: str, name: str, falls: bool, allowed: float, relative: bool) -> None:
    gate = parse(text)
    assert (gate.name, gate.falls, gate.allowed, gate.relative) == (name, falls, allowed, relative)


@pytest.mark.parametrize(
    ("text", "measure", "said"),
    [
        ("accuracy >", "", "cannot read the gate"),
        (">= -0.5%", "", "cannot read the gate"),
        ("accuracy >= 0.95", "", "how much may be lost"),
        ("loss <= -1%", "", "how much may be lost"),
        ("accuracy >= -0.5 points", "", "cannot read the gate"),
        ("loss <= 1%", "loss=(", "no regular expression"),
        ("loss <= 1%", "loss=.*", "has 0 groups"),
        ("loss <= 1%", "(loss)=(.*)", "has 2 groups"),
        ("loss <= 1%", "../of_yesterday.json:loss", "outside the program's folder"),
        ("loss <= 1%", "/tmp/of_yesterday.json:loss", "outside the program's folder"),
        ("loss <= 1%", "../of_yesterday.csv:loss", "outside the program's folder"),
        ("loss >= -1%", "", "less of it is better"),
        ("val/Loss >= -1%", "m.json:loss", "less of it is better"),
        ("test_acc <= 1%", "", "more of it is better"),
    ],
)
def test_a_rule_that_cannot_be_held_is_refused(text: str, measure: str, said: str) -> None:
    with pytest.raises(GobrrrError, match=said) as error:
        parse(text, measure)
    assert error.value.hint


@pytest.mark.parametrize(
    ("printed", "number", "percent"),
    [
        ("accuracy: 0.97", 0.97, False),
        ("Accuracy = 97.25 %\n", 97.25, True),
        ("epoch 1 accuracy 90.0%\nepoch 2 accuracy 91.5%\ndone\n", 91.5, True),
        ('{"accuracy": 9.1e-1}', 0.91, False),
        ("val_accuracy: 0.1\naccuracy: .5, best: 0.9", 0.5, False),
        ("accuracy: 0.97\nval/accuracy: 0.2\ntrain-accuracy: 0.3\naccuracy:\n\n3 samples were left", 0.97, False),
        ("accuracy: 0.97, 3 classes\naccuracy 1: 0.5", 0.97, False),
        ("accuracy: 97\n100 samples", 97, False),
        ("accuracy: 0.5 0.25 100 7 200", 0.5, False),
    ],
)
def test_the_last_number_behind_the_name_counts(tmp_path: Path, printed: str, number: float, percent: bool) -> None:
    assert parse("accuracy >= -1%").value(printed, tmp_path, 0) == (number, percent)


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("accuracy: 87.9%\naccuracy 95% CI: 87.5 to 88.2", "several ways"),
        ("accuracy 500/500 images: 91.2", "several ways"),
        ("accuracy 10 of 10 batches: 91.2", "several ways"),
        ("accuracy 10-fold mean: 0.81", "several ways"),
        ("accuracy 16 kHz: 9.3", "several ways"),
        ("accuracy 8192 tokens 1.30", "several ways"),
        ("accuracy 2026-11-30 91.2", "several ways"),
        ("accuracy: 0.912\naccuracy: 3/5 folds", "several ways"),
        ("accuracy: 91.2\ntrain accuracy: 99.0", "printed as 'accuracy' and 'train accuracy'"),
        ("val accuracy 90.1\ntest accuracy 91.2", "printed as 'test accuracy' and 'val accuracy'"),
        ("Top-1 accuracy: 70.1\nTop-5 accuracy: 90.1", "printed as 'top-1 accuracy' and 'top-5 accuracy'"),
        ("accuracy: 0.91-0.93", "several ways"),
        ("accuracy: 95 of 100", "several ways"),
        ("f1: 0.3, top1 = 91.2", "there are f1, top1"),
    ],
)
def test_a_number_that_may_be_another_is_refused(tmp_path: Path, printed: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse("accuracy >= -1%").value(printed, tmp_path, 0)


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("epoch 1 accuracy 0.91 loss 0.3\nepoch 2 accuracy 0.92 loss 0.2", 0.92),
        ("accuracy: 91.2% (456/500)", 91.2),
        ("epoch 3: test accuracy = 91.25%, loss 0.3", 91.25),
        ("accuracy 91\n", 91),
        ("accuracy 95\r100%|###| 3/3", 95),
        ("accuracy 1e0 loss 0.3", 1),
        ("accuracy: 0.912 in 12.3 s", 0.912),
        ("accuracy 0.31 / f1 0.9", 0.31),
        ("Test accuracy: 1.5\ntest accuracy: 2.5", 2.5),
        ("accuracy 12.5 on 100 notes", 12.5),
        ("accuracy: 12.50% of 96 notes", 12.5),
        ("accuracy: 12% of 96 notes", 12),
    ],
)
def test_other_numbers_of_a_line_leave_no_doubt(tmp_path: Path, printed: str, number: float) -> None:
    assert parse("accuracy >= -1%").value(printed, tmp_path, 0)[0] == number


@pytest.mark.parametrize(
    "printed", ["", "val_accuracy: 0.5", "accuracy: high", "accuracy: 0.5abc", "accuracy: NaN", "accuracy: -inf"]
)
def test_what_is_no_number_is_none(tmp_path: Path, printed: str) -> None:
    with pytest.raises(ValueError, match=r"no number is printed|accuracy is -?(nan|inf)"):
        parse("accuracy >= -1%").value(printed, tmp_path, 0)


@pytest.mark.parametrize(
    "number", ["1,024.00", "97,25 %", "1.024,5", "1'024", "1 024", "-1\xa0024.5", "1_024", "10,000"]
)
@pytest.mark.parametrize("measure", ["", r"ppl: ([-+]?\d+)"])
def test_a_number_with_separators_is_not_cut_short(tmp_path: Path, number: str, measure: str) -> None:
    with pytest.raises(ValueError, match="has separators"):
        parse("ppl <= 1%", measure).value(f"ppl: 3.5\nppl: {number}\n", tmp_path, 0)


def test_a_regular_expression_of_the_users(tmp_path: Path) -> None:
    gate = parse("acc >= -1%", r"top1 \((.+?)\)")
    assert gate.value("top1 (91.5 %), top5 (99)\n", tmp_path, 0) == (91.5, True)
    with pytest.raises(ValueError, match="'high' is no number"):
        gate.value("top1 (high)", tmp_path, 0)


def test_a_regular_expression_leaves_no_doubt(tmp_path: Path) -> None:
    assert parse("acc >= -1%", r"acc (\d+)").value("train acc 3\nacc 95 of 100 runs", tmp_path, 0) == (95, False)


def test_a_number_in_a_file_that_the_run_wrote(tmp_path: Path) -> None:
    gate = parse("acc >= -1%", "out/m.json:test.0.acc")
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "m.json"
    file.write_text('{"test": [{"acc": 0.75}]}')
    os.utime(file, ns=(2000, 2000))
    assert gate.value("", tmp_path, 1000) == (0.75, False)
    with pytest.raises(ValueError, match="does not write"):
        gate.value("", tmp_path, 2000)
    for text, said in [('{"test": []}', "has no test.0.acc"), ('{"test": [{"acc": true}]}', "is no number"),
                       ('{"test": [{"acc": "1"}]}', "is no number"), ("{", "as JSON"), ("[" * 100_000, "as JSON"),
                       ('{"test": [{"acc": 1e999}]}', "acc is inf|as JSON"), ("[1]", "has no")]:  # fmt: skip
        file.write_text(text)
        with pytest.raises(ValueError, match=said):
            gate.value("", tmp_path, 0)
    file.unlink()
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        gate.value("", tmp_path, 0)


@pytest.mark.parametrize(
    "text", ["gloss >= -1%", "loss accuracy >= -1%", "score >= -1%", "accuracy >= -1%", "test-loss <= 1%"]
)
def test_a_name_that_does_not_say_which_way_is_better_is_the_users(text: str) -> None:
    assert parse(text, "loss: (.*)").text == text


@pytest.mark.parametrize(
    ("measure", "inside"),
    [("eval:score", True), ("a.b_c:d", True), ("log:val/acc", True), ("m.json:acc", False), ("a/m.csv:val_acc", False),
     (r"log:(\d+)", False), ("", False)],
)  # fmt: skip
def test_what_is_measured_in_the_process(measure: str, inside: bool) -> None:
    assert parse("score >= -1%", measure).inside == inside


def test_a_number_in_a_table_that_a_logger_wrote(tmp_path: Path) -> None:
    gate, file = parse("acc >= -1%", "logs/metrics.csv:val_acc"), tmp_path / "logs" / "metrics.csv"
    file.parent.mkdir()
    file.write_text("step,val_acc,loss\n1,0.5,\n2,0.75,\n3,,0.1\n")
    assert gate.value("", tmp_path, 0) == (0.75, False)
    with pytest.raises(ValueError, match="does not write"):
        gate.value("", tmp_path, file.stat().st_mtime_ns)
    for text, said in [("", "has no val_acc"), ("val_acc\nhigh\n", "is no number"), ("val_acc\nnan\n", "acc is nan"),
                       ("\x00val_acc\n1", "CSV|has no"), ('val_acc\n"' + 200_000 * "a", "CSV")]:  # fmt: skip
        file.write_text(text)
        with pytest.raises(ValueError, match=said):
            gate.value("", tmp_path, 0)


def test_rows_of_an_earlier_run_are_not_this_ones(tmp_path: Path) -> None:
    gate, before, now = parse("acc >= -1%", "log.csv:acc"), tmp_path / "before", tmp_path / "now"
    for folder, text in ((before, "step,acc\n1,0.5\n2,0.91\n"), (now, "step,acc\n1,0.5\n2,0.91\n3,\n")):
        folder.mkdir()
        (folder / "log.csv").write_text(text)
    assert gate.value("", now, 0) == (0.91, False)
    with pytest.raises(ValueError, match=r"log\.csv has no acc"):
        gate.value("", now, 0, None, before)
    (now / "log.csv").write_text((before / "log.csv").read_text())
    assert gate.value("", now, 0, None, before) == (0.91, False)
    (now / "log.csv").write_text("step,acc\n1,0.25\n")
    assert gate.value("", now, 0, None, before) == (0.25, False)


def test_a_measure_of_the_process_is_given_or_says_why_not(tmp_path: Path) -> None:
    gate = parse("acc >= -1%", "eval:score")
    assert gate.value("acc: 3", tmp_path, 0, {("acc", "eval:score"): 0.5}) == (0.5, False)
    with pytest.raises(ValueError, match="KeyError"):
        gate.value("acc: 3", tmp_path, 0, {("acc", "eval:score"): "KeyError: 'x'"})
    with pytest.raises(ValueError, match="not measured"):
        gate.value("acc: 3", tmp_path, 0)
