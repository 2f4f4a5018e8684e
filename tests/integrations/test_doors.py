"""Callbacks, loggers and notebooks: they observe, end what they begin, and break nothing. The real libraries where they
are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gobrrr
from gobrrr.capture.process import bootstrap
from gobrrr.integrations.loggers import log, scalars
from gobrrr.integrations.observer import Observer
from gobrrr.integrations.watch import load
from tests.support import report_samples as samples


def train(steps: int = 60, fail_at: int = -1) -> torch.Tensor:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(steps):
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == fail_at:
            raise RuntimeError("mine")
    return model.weight.detach()


@pytest.fixture(autouse=True)
def _nothing_watched_afterwards():
    before = torch.optim.Optimizer.__dict__["__init__"], torch.autograd.backward
    yield
    assert bootstrap.session is None
    assert (torch.optim.Optimizer.__dict__["__init__"], torch.autograd.backward) == before


def test_an_observer_reports_what_it_watched_and_changes_nothing(tmp_path: Path, capsys: Any) -> None:
    expected = train()
    observer = Observer(tmp_path / "run")
    assert observer.report is None
    observer.begin()
    found = train()
    assert observer.report is None  # not yet
    observer.end()
    observer.end()
    assert torch.equal(found, expected)
    assert observer.report and observer.report.step.kind == "training"
    assert observer.report.verdict.sentence[:40] in capsys.readouterr().err.replace("\n", " ")


def test_a_watch_that_never_ended_ends_with_the_next(tmp_path: Path) -> None:
    observer = Observer(show=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        observer.begin()
        with pytest.raises(RuntimeError, match="mine"):
            train(fail_at=5)
        first = observer.watched
        observer.begin()
        train()
        observer.end()
    assert first and observer.watched and first.folder != observer.watched.folder
    assert observer.report and observer.report.step.count > 30


def test_where_a_watch_is_on_already_the_training_goes_on(tmp_path: Path, capsys: Any) -> None:
    observer = Observer(tmp_path / "inner", show=False)
    with gobrrr.watch(tmp_path / "outer", show=False) as outer:
        observer.begin()
        train()
        observer.end()
    assert "end the outer block first" in capsys.readouterr().err
    assert observer.report is None and outer.result.step.count > 30


def test_a_report_is_never_that_of_the_training_before(tmp_path: Path) -> None:
    observer = Observer(tmp_path / "one", show=False)
    observer.begin()
    train()
    observer.end()
    with gobrrr.watch(tmp_path / "outer", show=False):
        observer.begin()
    assert observer.report is None


def test_a_program_may_change_its_folder_while_it_is_watched(tmp_path: Path, capsys: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        (tmp_path / "elsewhere").mkdir()
        with gobrrr.watch("run") as watched:
            patch.chdir(tmp_path / "elsewhere")
            train()
    assert "step" in capsys.readouterr().err and (tmp_path / "run" / "report.json").is_file()
    assert watched.folder == (tmp_path / "run").resolve()


class Shell:
    """What the magic asks of IPython."""

    class Done:
        def __init__(self, success: bool) -> None:
            self.success = success

    def __init__(self) -> None:
        self.space: dict[str, Any] = {"train": train}

    def register_magic_function(self, function: Any, kind: str) -> None:
        assert kind == "cell"
        self.magic = function

    def run_cell(self, cell: str, store_history: bool) -> Done:
        try:
            exec(cell, self.space)
        except Exception:
            return self.Done(False)
        return self.Done(True)


def test_a_cell_is_run_as_it_is_and_shows_its_report(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    load(shell)
    shown = shell.magic("here", "found = train()")
    assert torch.equal(shell.space["found"], train())
    assert (tmp_path / "here").is_dir() and repr(shown) == shown.result.verdict.sentence
    page = shown._repr_html_()
    assert page.startswith("<iframe sandbox=") and "&lt;!DOCTYPE html&gt;" in page and page.count("<") == 2
    assert shell.magic("", "1 / 0") is None
    nothing = shell.magic("", "y = 3")
    assert "made no step" in repr(nothing) and nothing._repr_html_() is None and shell.space["y"] == 3


def test_figures_of_a_report_by_hand() -> None:
    report = samples.starved()
    found = scalars(report)
    assert found["gobrrr/step_ms"] == report.step.plain_wall_ns / 1e6
    shares = {name: value for name, value in found.items() if "/share/" in name}
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)
    expected = sum(f.saving.expected_ns for f in report.findings) / 1e6
    assert sum(value for name, value in found.items() if "/finding/" in name) == pytest.approx(expected)


class Recorded:
    """Every call of a logger."""

    def __init__(self, *methods: str) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.summary: dict[str, str] = {}
        for method in methods:
            setattr(self, method, lambda *args, _name=method, **named: self.calls.append((_name, args, named)))


def test_each_logger_gets_figures_and_the_verdict() -> None:
    report = samples.starved()
    figures = scalars(report)
    board = Recorded("add_scalar", "add_text")
    log(report, board, 7)
    assert {args[0]: args[1] for name, args, _ in board.calls if name == "add_scalar"} == figures
    assert [args[2] for _, args, _ in board.calls] == [7] * (len(figures) + 1)
    flow = Recorded("log_metrics", "log_text")
    log(report, flow, 7)
    assert flow.calls[0] == ("log_metrics", (figures,), {"step": 7}) and flow.calls[1][1][1] == "gobrrr.txt"
    run = Recorded("log")
    log(report, run, 7)
    assert run.calls == [("log", (figures,), {"step": 7})]
    assert run.summary["gobrrr/verdict"] == report.verdict.sentence
    with pytest.raises(TypeError, match="list is no SummaryWriter"):
        log(report, [])


def trainer(callback: Any, folder: Path, fail_at: int = -1) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=1,
                                     intermediate_size=16)  # fmt: skip

    class Texts(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 160

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == fail_at:
                raise RuntimeError("mine")
            return {"input_ids": torch.arange(16) + index % 7, "labels": index % 2}

    torch.manual_seed(0)
    how = transformers.TrainingArguments(str(folder), per_device_train_batch_size=4, num_train_epochs=1, report_to=[],
                                         save_strategy="no", disable_tqdm=True, use_cpu=True)  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    return transformers.Trainer(model, how, train_dataset=Texts(), callbacks=[callback] if callback else [])


def test_hugging_faces_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from gobrrr.integrations.huggingface import GobrrrCallback

    plain = trainer(None, tmp_path)
    plain.train()
    callback = GobrrrCallback(tmp_path / "run", show=False)
    watched = trainer(callback, tmp_path)
    watched.train()
    assert callback.report and callback.report.step.kind == "training" and callback.report.step.count > 20
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)
    failing = GobrrrCallback(tmp_path / "failed", show=False)
    with pytest.raises(RuntimeError, match="mine"):
        trainer(failing, tmp_path, fail_at=50).train()
    failing.close()


@pytest.mark.parametrize("fails", [False, True])
def test_lightnings_trainer(tmp_path: Path, fails: bool) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.loggers import CSVLogger

    from gobrrr.integrations.lightning import GobrrrCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 2)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            if fails and index == 30:
                raise RuntimeError("mine")
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    rows = torch.utils.data.TensorDataset(torch.randn(400, 16), torch.randint(0, 2, (400,)))
    callback = GobrrrCallback(tmp_path / "run", show=False, log=True)
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=CSVLogger(tmp_path), callbacks=[callback],
                                enable_progress_bar=False, enable_checkpointing=False,
                                enable_model_summary=False)  # fmt: skip
    if fails:
        with pytest.raises(RuntimeError, match="mine"):
            trainer.fit(Model(), torch.utils.data.DataLoader(rows, 8))
        return
    trainer.fit(Model(), torch.utils.data.DataLoader(rows, 8))
    assert callback.report and callback.report.step.count > 20
    trainer.logger.save()
    assert "gobrrr/step_ms" in next(tmp_path.rglob("metrics.csv")).read_text()


def test_a_real_kernel(tmp_path: Path) -> None:
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = (
        "%load_ext gobrrr", "import torch; m = torch.nn.Linear(64, 64); o = torch.optim.SGD(m.parameters(), 0.1)",
        "%%gobrrr\nfor _ in range(80):\n    m(torch.randn(32, 64)).square().mean().backward()\n    o.step()",
    )  # fmt: skip
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = [out["data"] for out in book.cells[-1].outputs if out.output_type == "execute_result"]
    assert "step" in shown["text/plain"] and shown["text/html"].startswith("<iframe")
