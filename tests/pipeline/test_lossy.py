"""Lossy edits searched behind a gate: on a real program, where they are put, and who is refused."""

from __future__ import annotations

import io
import sys
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gobrrr.cli.main import main
from gobrrr.cli.verbs import tune
from gobrrr.errors import UNMEASURED, GobrrrError
from gobrrr.pipeline.lossy import searching
from gobrrr.pipeline.proving import Asked
from gobrrr.remedies.edits.inference import WhereReady
from gobrrr.remedies.edits.lossy import FORMS, Facts, Part, Point, Written, statements, written
from gobrrr.remedies.edits.program import files_of, read
from gobrrr.remedies.edits.source import Source
from gobrrr.report.forms import formats
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.gate.rule import parse
from gobrrr.trial.lossy.bench import Bench
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt.receipt import Gated, Receipt, Tried

PROGRAM = """
import torch

torch.manual_seed(3)
torch.set_num_threads(1)


class Wrapped:
    def __init__(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(16, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH),
                                       torch.nn.ReLU(), torch.nn.Linear(WIDTH, 4))
        self.net.eval()

    def __call__(self, x):
        return self.net(x)


model = Wrapped()
x = torch.randn(400, 16)
with torch.no_grad():
    truth = model(x).argmax(1)
    right = sum((model(rows + 0.1 * torch.randn(rows.shape)).argmax(1) == labels).sum().item()
                for _ in range(TIMES) for rows, labels in zip(x.split(40), truth.split(40)))
print(f"accuracy: {100 * right / 400 / TIMES:.2f}%")
"""


def program(folder: Path, width: int = 64, times: int = 1, text: str = PROGRAM) -> Path:
    (folder / "program").mkdir(exist_ok=True)
    text = text.replace("WIDTH", str(width)).replace("TIMES", str(times))
    (folder / "program" / "eval.py").write_text(text)
    return folder / "program"


def bench(
    folder: Path, rule: str = "accuracy >= -5", edits: dict[str, EditOnTrial] | None = None, measure: str = ""
) -> Bench:  # fmt: skip
    """A bench whose arms are real."""
    command, known = (sys.executable, "eval.py"), {} if edits is None else edits
    write = partial(written, read(files_of(command, folder)), folder)
    referee = LiveReferee(Program(command, folder, edits=known), folder.parent / "arms")
    return Bench((referee.whole, referee.is_over), folder.parent / "arms", known, [parse(rule, measure)], write,
                 float("inf"), lambda _: None)  # fmt: skip


def test_whole_runs_say_how_good_how_small_and_which_layer_matters(tmp_path: Path) -> None:
    found = bench(program(tmp_path))
    assert found.facts.layers["linear"] == 3 and found.facts.calls == 11
    assert found.own.bytes == 4 * (16 * 64 + 64 + 64 * 64 + 64 + 64 * 4 + 4) and found.own.gates[0].change == 0
    seen = found.run((Part("int8_dynamic", keep=("4",)),))
    assert seen.held and seen.reason == "" and seen.gates[0].change != 0 and seen.bytes < found.own.bytes / 2
    layers = found.sensitivity(Part("int8_dynamic"))
    assert set(layers) == {"0", "2", "4"} and all(0 < each < 1 for each in layers.values())


def test_a_gate_that_cannot_be_read_and_a_point_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(GobrrrError, match="no number is printed as f1") as refused:
        bench(program(tmp_path), "f1 >= -1%")
    assert refused.value.exit_code == UNMEASURED
    found = bench(
        program(tmp_path, text=PROGRAM.replace("return self.net(x)", "return self.net(x) + self.net[0].weight.sum()"))
    )
    assert "with the edit" in found.run((Part("int8_dynamic"),)).reason


def test_an_unknown_edit_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(program(tmp_path))
    for option in ("--only", "--without"):
        assert main(["tune", "--accept", "accuracy >= -1%", option, "int8_dynamic,nosuch", "eval.py"]) == 2
        said = capsys.readouterr().err
        assert "nosuch is no edit that is searched" in said and "Traceback" not in said
    assert [each.name for each in Path().iterdir()] == ["eval.py"]


def test_what_an_earlier_run_left_in_a_table_is_not_read(tmp_path: Path) -> None:
    source = program(tmp_path, text=PROGRAM + "open('log.csv', 'a').write('2,\\n')\n")
    (source / "log.csv").write_text("step,acc\n1,0.9\n")
    with pytest.raises(GobrrrError, match=r"log\.csv has no acc"):
        bench(source, "acc >= -5%", measure="log.csv:acc")


TRAINS = """
def train(model, x):
    torch.nn.functional.mse_loss(model(x), x[:, :4]).backward()
"""


def test_code_that_trains_and_is_not_called_is_no_reason(tmp_path: Path) -> None:
    found = bench(program(tmp_path, text=PROGRAM.replace("import torch\n", f"import torch\n{TRAINS}\n", 1)))
    assert found.run((Part("int8_dynamic"),)).reason == ""


def test_a_program_that_trains_is_refused_as_it_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import torch\nnet = torch.nn.Linear(4, 4).eval()\noptimizer = torch.optim.SGD(net.parameters(), 1e-3)\n"
    text += (
        "for _ in range(400):\n    net(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\nprint('accuracy: 1')\n"
    )
    monkeypatch.chdir(program(tmp_path, text=text))
    assert main(["tune", "--accept", "accuracy >= -1%", "--minutes", "1", "eval.py"]) == 2
    assert "the program trains: lossy edits are searched for programs that only infer" in capsys.readouterr().err


ALIAS = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 8))
other = net
net.eval()
print("accuracy:", 90 + other(torch.ones(1, 8)).detach().mean().item())
"""


def test_an_edited_model_that_is_never_called_does_not_run(tmp_path: Path) -> None:
    found = bench(program(tmp_path, text=ALIAS))
    assert found.run((Part("static_int8"),)).reason == "the edited model is never called"
    assert found.run((Part("half_precision"),)).reason == ""


@pytest.mark.slow
def test_a_search_keeps_what_is_proven_and_its_patch_applies(tmp_path: Path) -> None:
    source = program(tmp_path, 1024, 20)
    asked = Asked((), seconds=150.0, gates=(parse("accuracy >= -5"),))
    allowed = {"int8_dynamic", "half_precision"}
    said = io.StringIO()
    receipt = searching.search([sys.executable, "eval.py"], source, tmp_path / "out", asked, allowed.__contains__, said)
    assert receipt.points[0].name == "as it is" and {each.name for each in receipt.points} >= allowed
    for each in receipt.points:
        assert each.mark not in ("kept", "within") or each.gates[0].change >= -5
    assert receipts.read(tmp_path / "out" / "receipt.json") == receipt
    assert bool(receipt.kept) == (tmp_path / "out" / "recipe.patch").exists()
    if receipt.kept:
        assert receipt.guard.gates[0].verdict == "accepted" and tune.exit_code(receipt) == 0
        assert "self.net = " in (tmp_path / "out" / "recipe.patch").read_text()


def test_a_program_without_a_place_is_refused_before_any_run(tmp_path: Path) -> None:
    asked, command = Asked((), gates=(parse("accuracy >= -1%"),)), [sys.executable, "eval.py"]
    source = program(tmp_path, text="import torch\nprint(1)\n")
    with pytest.raises(GobrrrError, match="no place is found"):
        searching.search(command, source, tmp_path / "out", asked, lambda name: True, io.StringIO())
    assert not (tmp_path / "out").exists()


def edited(text: str, point: Point, noted: str = "", facts: Facts | None = None) -> Written:
    source = Source(text, Path("/there/eval.py"))
    return written([source], Path("/there"), point, facts, noted)


INT8 = (Part("int8_dynamic", keep=('it\'s "q".0', "b")),)


@pytest.mark.parametrize(("line", "there"), [
    ("model = Net().eval()", "model = Net().eval()\nmodel = torch"),
    ("net.eval()\nnet.load_state_dict(w)\nnet = net.cuda()\nrun(net)", "net = net.cuda()\nnet = torch"),
    ("model.eval()\nmodel = torch.compile(model)", "model.eval()\nmodel = torch.ao"),
    ("m = BertForX.from_pretrained(a).to(d)", "m = BertForX.from_pretrained(a).to(d)\nm = torch"),
    ("def f():\n    return Net().eval()\nf()", "    ready_model = Net().eval()\n    ready_model = torch"),
    ("a = b = Net().eval()", "ready_model = Net().eval()\nready_model = torch"),
    ("m.eval()\nw = torch.load(p)\nload_weights(m, w)\nm.cuda()\nrun(m)", "m.cuda()\nm = torch"),
    ("m.eval()\nwith x:\n    m.load_state_dict(w)\nrun(m)", "    m.load_state_dict(w)\nm = torch"),
    ("with x:\n    m = Net().eval()\nm.load_state_dict(w)\nrun(m)", "m.load_state_dict(w)\nm = torch"),
    ("ms = [m.eval() for m in ms]", ""),
    ("m = None if no else M.from_pretrained(a).eval()", ""),
    ("run(a := read(), Net(a).eval())", ""),
    ("with open(f) as g, hold(load(g).eval()):\n    run()", ""),
    ("if no:\n    run()\nelif run(Net().eval()):\n    run()", ""),
    ("ready_model = 1\nrun(Net().eval())", ""),
    ("f = lambda: m.eval()", ""),
    ("t = AutoTokenizer.from_pretrained(a)", ""),
    ("for x in y:\n    model.eval()", ""),
])  # fmt: skip
def test_it_is_put_where_the_model_is_ready(line: str, there: str) -> None:
    found = edited(f"import torch\n{line}\n", INT8).files
    assert there in found.get("eval.py", b"").decode() if there else not found


RUNS = {
    "a global": ("def evaluate():\n    'Doc.'\n    net.eval()\n    return net(x)\nevaluate()\n", 1, 1),
    "an outer function's": (
        "def main():\n    inner = net\n    def evaluate():\n        inner.eval()\n        return inner(x)\n"
        "    evaluate(), evaluate()\nmain()\n", 2, 1),
    "an argument": ("def evaluate(m):\n    m.eval()\n    return m(x)\nevaluate(net), evaluate(net)\n", 2, 1),
    "called in a loop": ("def evaluate(m):\n    m.eval()\n    m(x)\nfor _ in range(3):\n    evaluate(net)\n", 3, 1),
    "two models": (
        "def evaluate(m):\n    m.eval()\n    return m(x)\nevaluate(net), evaluate(torch.nn.Linear(8, 8))\n", 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_each_model_is_changed_once_however_often_its_place_is_reached(name: str) -> None:
    import torch

    body, calls, times = RUNS[name]
    text = f"import torch\nnet = torch.nn.Linear(8, 8)\nx = torch.ones(1, 8)\n{body}"
    changed, called = list[torch.nn.Module](), list[object]()

    def copied(model: torch.nn.Module) -> torch.nn.Module:
        changed.append(model)
        other = torch.nn.Sequential(model)
        other.register_forward_hook(lambda *_: called.append(0))
        return other

    source = Source(text, Path("/there/eval.py"))
    after = source.with_changes(WhereReady("{model} = copied({model})")(source))
    exec(compile(after, "<edited>", "exec"), {"copied": copied})
    assert (len(called), len(changed)) == (calls, times)


def test_names_of_layers_are_quoted_and_every_form_is_python() -> None:
    text = "import torch\nmodel = Net().eval()\n"
    assert 'not in {"b", \'it\\\'s "q".0\'}' in edited(text, INT8).diff.replace("'b'", '"b"')
    for form in FORMS:
        for noted in ("", "run", "sensitivity"):
            part = Part(form.name, keep=("a'b",), knob=0.9)
            if noted != "sensitivity" or not form.exact:
                found = edited(text, (part,), noted).files["eval.py"].decode()
                compile(found, form.name, "exec")
                assert ("a'b" in found) == (not form.exact and not (noted == "sensitivity" and form.simulated)), found


def test_forms_are_put_on_in_one_order_and_compiled_last() -> None:
    point = (Part("compile"), Part("half_precision"), Part("int8_dynamic"))
    code, imports = statements(point, Facts(1, 1, 9, 1, {"attention": 2}))
    lines = code.splitlines()
    assert "fastpath" in lines[0] and "quantize_dynamic" in lines[1] and "half" in lines[2]
    assert lines[-1] == "{model} = torch.compile({model})" and "torch._inductor.config" in imports


def test_a_receipt_tells_each_point_and_why_others_were_not_tried() -> None:
    gate = Gated(rule="acc >= -1", name="acc", baseline=(90.0,), candidate=(89.5,), change=-0.5, allowed=-1.0)
    points = (Tried(name="as it is", speed=1.0, bytes=8 << 20, gates=(gate,), best=True),
              Tried(name="int8_dynamic", mark="kept", speed=2.5, bytes=2 << 20, gates=(gate,), best=True, stays=("a",)),
              Tried(name="<b>", mark="does not run", reason="RuntimeError: <i>"))  # fmt: skip
    receipt = Receipt(verb="prove", points=points, not_tried={"fp8": "no device", "int4_weights": "no device"})
    text = formats.render(receipt, "text", formats.PLAIN).decode()
    assert "none is faster within its gate" in text and "2.50x" in text and "2.00 MiB" in text
    assert "layers that stay: a" in text and "not tried: fp8, int4_weights: no device" in text
    page = formats.render(receipt, "html", formats.PLAIN).decode()
    assert "<svg" in page and "kept, not beaten" in page and "<i>" not in page and "<b>&lt;" not in page
    assert tune.exit_code(receipt) == 0
