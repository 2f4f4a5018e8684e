"""What a whole run measures in the program's process, and what it counts of programs that call models in their way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")

from gobrrr.guard.model.account import Calls
from gobrrr.trial.arm.arm import Arm
from gobrrr.trial.arm.whole import Ran
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate import pairs
from gobrrr.trial.gate.rule import parse
from gobrrr.trial.race.referee import LiveReferee, Program

LOADED = """
import logging, random, sys
import numpy, torch
from torch.utils.data import DataLoader, TensorDataset
from mlflow import log_metric

torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 2), torch.nn.Dropout(0.5)).eval()
x = torch.randn(100, 8)
truth = (x @ model[0].weight.T + 0.3 * torch.randn(100, 2)).argmax(1)

def score(model, batch):
    rows, labels = batch
    return (model.train()(rows).sum() * 0 + (model.eval()(rows).argmax(1) == labels).double().mean())

right = 0
with torch.no_grad():
    for rows, labels in DataLoader(TensorDataset(x, truth), batch_size=32):
        half = len(rows) // 2
        given = torch.cat([model(rows[:half]), model(rows[half:])])
        right += (given.argmax(1) == labels).sum().item()
assert not model.training
log_metric("val/acc", torch.tensor(right / 100 + 1e-3))
import wandb
wandb.log({"late": 0.25}, step=1)
logging.basicConfig(level=logging.INFO)
logging.info("recall: 0.75")
print("accuracy:", right / 100, torch.rand(()).item(), random.random(), numpy.random.rand())
"""
HELPERS = """
import random, numpy, torch

def parts(model, batch):
    model.train(), torch.rand(3), random.random(), numpy.random.rand()
    return {"rows": float(len(batch[0])), "one": torch.tensor([1.0])}

def broken(model, batch):
    raise RuntimeError("as it is")

def words(model, batch):
    return "high"

def nan(model, batch):
    return float("nan")
"""
MEASURES = [("acc", "eval:score"), ("rows", "helpers:parts"), ("one", "helpers:parts"), ("b", "helpers:broken"),
            ("w", "helpers:words"), ("n", "helpers:nan"), ("f", "helpers:nothing"), ("m", "nowhere:f"),
            ("val", "log:val/acc"), ("no", "log:val/none"), ("late", "log:late")]  # fmt: skip


def whole(folder: Path, text: str, measures: Sequence[tuple[str, str]] = (), launched: Sequence[str] = ()) -> Ran:
    (folder / "eval.py").write_text(text)
    program = Program((sys.executable, *launched, "eval.py"), folder)
    edits = {"a.diff": EditOnTrial(ProgramEdit("a.diff", {}), gates=(parse("acc >= -1%"),))}
    referee = LiveReferee(program._replace(edits=edits), folder.parent / "arms")
    arm = referee.whole(folder.parent / f"arm{len(list(folder.parent.iterdir()))}", ())
    try:
        return arm.whole(0, 90.0, measures)
    finally:
        arm.end()
        referee.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program").mkdir()
    return tmp_path / "program"


def test_the_users_function_sees_each_batch_and_leaves_nothing_behind(folder: Path) -> None:
    """Four batches in eight calls of the model; what it draws and which mode it leaves is as if it had not run."""
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "mlflow.py").write_text("def log_metric(key, value): ...\n")
    (folder / "wandb.py").write_text("def log(data, step=None): ...\n")
    ran, plain = whole(folder, LOADED, MEASURES), whole(folder, LOADED)
    assert ran.printed == plain.printed and ran.row == plain.row
    printed = parse("accuracy >= -1%").value(ran.printed, folder, 0)[0]
    assert ran.measured["acc", "eval:score"] == pytest.approx(printed) and 0.5 < printed < 1
    assert ran.measured["rows", "helpers:parts"] == pytest.approx((3 * 32 * 32 + 4 * 4) / 100)
    assert ran.measured["one", "helpers:parts"] == 1
    assert (
        ran.measured["val", "log:val/acc"] == pytest.approx(printed + 1e-3) and ran.measured["late", "log:late"] == 0.25
    )
    taken = {each.name: each for each in ran.taken}
    assert taken["acc"].weight == 100 and taken["acc"].source and taken["acc"].source != taken["rows"].source
    wrong = {"b": "RuntimeError: as it is", "w": "ValueError", "n": "gives nan", "f": "put it into a file of its own",
             "m": "ModuleNotFoundError", "no": "no logger is given val/none"}  # fmt: skip
    for name, said in wrong.items():
        where = dict(MEASURES)[name]
        with pytest.raises(ValueError, match=said):
            parse(f"{name} >= -1%", where).value(*ran[1:5])
    assert parse("recall >= -1%").value(*ran[1:5])[0] == 0.75  # on stderr
    assert not ran.trains


METRIC = "def score(model, batch):\n    return (model(batch[0]).argmax(1) == batch[1]).double().mean()\n"
LOOP = """
import copy, torch, metric
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(100, 8)
model = torch.nn.Linear(8, 2).eval()
y = (x @ model.weight.T + model.bias).argmax(1)
with torch.no_grad():
    for n, (a, b) in enumerate(DataLoader(TensorDataset(x, y), 20)):
        model(a)
"""
EACH, DATA = "        model(a)", "DataLoader(TensorDataset(x, y), 20)"
COPIES = (
    f"        each = copy.deepcopy(model)\n        each.bias.data[0] += 1e3 * (n < 4)\n{EACH.replace('model', 'each')}"
)


EDITS = [
    (DATA, DATA.replace("20", "32"), ""),
    (DATA, f"list({DATA})", "measured on 20 samples with the edit, on 100 in"),
    (DATA, DATA.replace("x,", "x + 1,"), "on other data"),
    (EACH, f"        model.train(n < 4)\n        torch.set_grad_enabled(n < 4)\n{EACH}", "on 20 samples"),
    (EACH, COPIES, ""),
    ("y = ", "metric.score = lambda model, batch: 1.0\ny = ", "the edit changes the file in which metric:score"),
]


def test_a_function_sees_the_same_of_an_edit_or_says_so(folder: Path) -> None:
    """And of a model that is copied for each batch every copy."""
    (folder / "metric.py").write_text(METRIC)
    plain, *edits = (
        whole(folder, text, [("a", "metric:score")])
        for text in (LOOP, *(LOOP.replace(before, after) for before, after, _ in EDITS))
    )
    assert plain.measured["a", "metric:score"] == 1
    for edit, (_, after, said) in zip(edits, EDITS, strict=True):
        found = pairs.other_measure(plain.taken, edit.taken, ())
        assert said in found and bool(said) == bool(found)
        assert said or (edit.measured["a", "metric:score"] == 1) == (after != COPIES)


NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 2)
    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))
def main():
    model = Net().eval()
    x = torch.randn(400, 8)
    truth, features = model(x).argmax(1), []
    right = 0
    with torch.no_grad():
        for rows in x.split(40):
            rows = rows + 0.1
            y = model(rows)
            features.append(y)
    print("accuracy:", 0.9)
main()
"""
CALL = "y = model(rows)"
SPLIT = "y = model.head(torch.relu(model.encoder(rows)))"
ONCE = NET.replace("append(y)", "append(model.encoder(rows))").replace(CALL, "y = 0").replace(
    "    print", "    y = model.head(torch.relu(torch.cat(features)))\n    print")  # fmt: skip


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        (NET.replace(CALL, SPLIT), 800),
        (NET.replace(CALL, f"f = model.encoder(rows); {CALL}"), 800),
        (NET.replace(CALL, "y = model(rows[:20]); y = model(rows[20:])"), 800),
        pytest.param(NET, 800, marks=pytest.mark.slow),
        pytest.param(NET.replace(CALL, f"{CALL}; f = model.encoder(rows)"), 800, marks=pytest.mark.slow),
        pytest.param(ONCE, 800, marks=pytest.mark.slow),
        (NET.replace(CALL, SPLIT).replace("x.split", "x[:200].split"), 600),
        (ONCE.replace("x.split", "x[:200].split"), 600),
        pytest.param(NET.replace("x.split", "x[:200].split"), 600, marks=pytest.mark.slow),
        (NET.replace(CALL, f"{CALL}; z = other(rows)").replace(
            "    right", "    other = Net().eval(); right"), 1200),
    ],
)  # fmt: skip
def test_a_sample_counts_once_whichever_parts_of_a_model_it_goes_through(folder: Path, form: str, rows: int) -> None:
    """The model whole, in parts, both; parts of a batch. Half of the samples, and another model's, are others."""
    row = whole(folder, form).row
    assert row.evaluated.rows == rows
    plain = msgspec.structs.replace(row, evaluated=Calls(1, 800, 6400))
    assert bool(pairs.other_work(plain, row, ())) == (rows != 800)


@pytest.mark.parametrize(("account", "each"), [(2, 40), pytest.param(1, 80, marks=pytest.mark.slow)])
def test_where_it_is_timed_a_sample_counts_once_under_gates_alone(folder: Path, account: int, each: int) -> None:
    text = (
        NET.replace(CALL, SPLIT).replace("model(x).argmax(1), []", "x, []").replace("x.split(40)", "x.split(40) * 99")
    )
    (folder / "eval.py").write_text(text)
    arm = Arm([sys.executable, "eval.py"], folder.parent / "arm", source=folder, account=account)
    try:
        arm.start()
        assert arm.run(20, 1e9).rows == 20 * each
    finally:
        arm.end()


NORMED = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)){mode}
with torch.no_grad():
    for _ in range(4):
        model(torch.randn(16, 8)){after}
print("accuracy: 0.9")
"""


@pytest.mark.parametrize(
    ("mode", "after", "said"),
    [("", "", "3 of its 4 calls"), (".eval()", "; model[0].weight -= 0.1", "3 of its 4 calls"),
     (".eval()", "\n    model.load_state_dict(model.state_dict())", "")],
)  # fmt: skip
def test_an_evaluation_that_trains_is_told(folder: Path, mode: str, after: str, said: str) -> None:
    """BatchNorm that keeps statistics of what it is tested on, weights that are updated by hand; not a checkpoint."""
    trains = whole(folder, NORMED.format(mode=mode, after=after)).trains
    assert said in trains and bool(trains) == bool(said)


JOB = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(8, 2).eval()
def rows(model, batch):
    return float(len(batch))
with torch.no_grad():
    for _ in range(3):
        model(torch.randn(10 + 20 * rank, 8))
print("accuracy:", 0.9 - 0.5 * rank)
dist.barrier()
dist.destroy_process_group()
"""


def test_of_a_job_counts_are_summed_and_rank_0_prints(folder: Path) -> None:
    launched = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    ran = whole(folder, JOB, [("rows", "eval:rows")], launched)
    assert ran.row.evaluated.calls == 6 and ran.row.evaluated.rows == 3 * (10 + 30)
    assert ran.measured["rows", "eval:rows"] == pytest.approx((10 * 10 + 30 * 30) / 40)
    assert parse("accuracy >= -1%").value(*ran[1:5])[0] == 0.9
