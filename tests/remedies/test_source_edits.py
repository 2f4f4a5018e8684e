"""Source edits: each finds its place, leaves alone what is none, and the program that it makes computes the same."""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gobrrr import rules
from gobrrr.errors import GobrrrError
from gobrrr.recording.model.facts import Span
from gobrrr.remedies import edits
from gobrrr.remedies.edits import catalogue
from gobrrr.remedies.edits.program import files_of, read, texts
from gobrrr.remedies.model import SAFETY
from gobrrr.remedies.registry import edit_names
from gobrrr.rules.model.finding import Finding, Saving
from gobrrr.trial.edit.reading import from_env
from tests.planted.catalogue import BY_NAME
from tests.support.patching import files_after, patched
from tests.support.report_samples import starved

torch = pytest.importorskip("torch")


def finding(file: Path, *lines: int, code: str = "BRR106", remedies: tuple[str, ...] = ()) -> Finding:
    where = tuple(Span(str(file), line) for line in lines)
    return Finding(code, "", "compute", "note", Saving(), "", where=where, remedies=remedies)


def planted(program: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The planted program as it is and with the edit for its finding, both run as modules."""
    illness = BY_NAME[program]
    sick = illness.script("sick")
    (text,) = files_after(
        catalogue.edit(name), [sick], sick.parent, finding(sick, *illness.guilty_lines()[:1])
    ).values()
    return module(sick.read_text()), module(text)


def module(text: str, order: list[str] | None = None) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "edited", "order": order}
    exec(compile(text, "edited.py", "exec", dont_inherit=True), names)
    torch.manual_seed(0)
    return names


@contextlib.contextmanager
def watched(kind: Any, look: Callable[..., object]) -> Iterator[list[object]]:
    """What `look` says at each call of a module of the kind."""
    said: list[object] = []

    def hook(each: Any, *given: Any) -> None:
        if isinstance(each, kind):
            said.append(look(each, *given))

    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    try:
        yield said
    finally:
        handle.remove()


def test_a_backbone_that_nobody_trains_gets_no_gradients() -> None:
    losses = []
    for names in planted("frozen_backbone", "freeze_unused"):
        torch.manual_seed(0)
        tuner = names["FineTuner"](3)
        images, labels = torch.randn(8, 3, 16, 16), torch.arange(8) % 3
        losses.append([tuner.train_step(images, labels) for _ in range(3)])
        gradients = [each.grad for each in tuner.backbone.parameters()]
    assert gradients[0] is None and torch.equal(*map(torch.stack, losses))


def test_an_evaluation_builds_no_graph() -> None:
    found, graphs = [], []
    for names in planted("evaluation_with_graph", "no_grad_evaluation"):
        torch.manual_seed(0)
        with watched(names["Segmenter"], lambda *_: torch.is_grad_enabled()) as said:
            found.append(names["evaluate"](names["Segmenter"](4, 2).eval(), 2))
        graphs += said
    assert torch.equal(*found) and graphs == [True, True, False, False]


def test_zeros_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, kept = [], []
    plain = torch.optim.Optimizer.zero_grad

    def zero_grad(optimizer: Any, set_to_none: bool = True) -> None:
        plain(optimizer, set_to_none)
        kept.append(optimizer.param_groups[0]["params"][0].grad is not None)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", zero_grad)
    for names in planted("zero_grad_writes_zeros", "set_to_none"):
        torch.manual_seed(0)
        learner, x = names["OnlineLearner"](width=16, depth=2), torch.randn(4, 16)
        losses.append(torch.stack([learner.learn(x, x[:, :1]) for _ in range(3)]))
    assert torch.equal(*losses) and kept == [False, True, True, False, False, False]


def test_embeddings_hand_on_the_rows_that_were_looked_up() -> None:
    weights, sparse = [], []
    for names in planted("dense_embedding_gradients", "sparse_gradient"):
        torch.manual_seed(0)
        model = names["Recommender"](50, 20, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randint(0, 50, (8,)), torch.randint(0, 20, (8,))).sum().backward()
            optimizer.step()
        weights.append(model.users.weight)
        sparse.append(model.users.weight.grad.is_sparse)
    assert torch.allclose(*weights) and sparse == [False, True]


def test_norms_are_folded_into_the_layers_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    said, norms = [], []
    for names in planted("norms_by_themselves", "fold_batch_norm"):
        torch.manual_seed(0)
        with watched(torch.nn.BatchNorm2d, lambda *_: True) as seen:
            names["score"](1)
        norms.append(len(seen))
        said.append(float(capsys.readouterr().out.split()[-1]))
    assert said[0] == pytest.approx(said[1], rel=1e-4) and norms == [12, 0]


SERVES = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
model.eval()
with torch.no_grad():
    found = model(torch.ones(2, 8))
"""


@pytest.mark.filterwarnings("ignore")  # torch's own, about moving to torchao
def test_linear_layers_are_computed_in_8_bits() -> None:
    plain, changed = module(SERVES), module(edited("int8_dynamic", SERVES))
    assert "quantized" in type(changed["model"][0]).__module__
    assert torch.allclose(plain["found"], changed["found"], atol=0.05)


@pytest.mark.slow
def test_a_model_with_frozen_weights_computes_the_same() -> None:
    plain, changed = module(SERVES), module(edited("compile_frozen", SERVES))
    assert torch._inductor.config.freezing and torch.allclose(plain["found"], changed["found"], atol=1e-5)
    torch._inductor.config.freezing = False


def test_the_collector_is_kept_from_what_is_there_before_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: order.append("frozen"))
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    module(edited("gc_freeze", LOOP.replace("optimizer.step()", "optimizer.step(); order.append('step')"), 14), order)
    assert order == ["frozen", *["step"] * 6]
    once = edited("gc_freeze", LOOP)
    assert edited("gc_freeze", once) == once


def edited(name: str, text: str, *lines: int) -> str:
    change = catalogue.edit(name).change
    assert change is not None
    after = patched(text, [change], lines)
    ast.parse(after)
    return after


LOOP = """
import torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
device, model = "cpu", torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 4), torch.randn(12, 1)), 4)
losses = []
for epoch in range(2):
    for index, (x, y) in enumerate(loader):
        x, y = x.to(device).float(), y.to(device)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""


def test_batches_are_sent_ahead_to_the_device_that_the_loop_names() -> None:
    after = edited("prefetch", LOOP, 11)
    assert "enumerate(gobrrr.data.prefetch(loader, device))" in after
    assert module(after)["losses"] == module(LOOP)["losses"]
    for other in ("y.to('cuda')", "y"):  # two devices; what is no loader
        changed = LOOP.replace("y.to(device)", other) if "to" in other else LOOP.replace("(loader)", "(batches)")
        assert edited("prefetch", changed) == changed
    assert edited("prefetch", LOOP, 3) == LOOP, "the finding points elsewhere"


def test_an_optimizer_updates_lists_of_tensors() -> None:
    after = module(edited("foreach_optimizer", LOOP))
    assert after["optimizer"].defaults["foreach"] and after["losses"] == pytest.approx(module(LOOP)["losses"])


RADAM = LOOP.replace("torch.optim.SGD(", "torch.optim.RAdam(")


def test_an_update_is_compiled_before_the_loop_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    after = edited("compiled_optimizer", RADAM)
    assert "compiled_step = torch.compile(optimizer.step)\n" in after and "    compiled_step()\n" in after
    monkeypatch.setattr("torch.compile", lambda step: step)
    assert module(after)["losses"] == module(RADAM)["losses"]


@pytest.mark.parametrize(
    "other",
    ["scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)", "optimizer.step()", "compiled_step = None",
     "for group in optimizer.param_groups: group['lr'] = 1"],
)  # fmt: skip
def test_an_update_whose_options_change_is_not_compiled(other: str) -> None:
    text = RADAM.replace("        losses.append(", f"        {other}\n        losses.append(", 1)
    assert text != RADAM and edited("compiled_optimizer", text) == text


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("Config(vocab_size=50257)", "Config(vocab_size=50304)"),
        ("class C:\n    vocab_size: int = 50257", "class C:\n    vocab_size: int = 50304"),
        ("VOCAB = 50257", "VOCAB = 50304"),
        ("vocab = 50304", "vocab = 50304"),
        ("vocab = 100", "vocab = 100"),
        ("tokens = 50257", "tokens = 50257"),
    ],
)
def test_a_vocabulary_is_rounded_up(text: str, after: str) -> None:
    assert edited("pad_vocabulary", text) == after


FREEZES = {
    "model = Net()\nopt = SGD(model.head.parameters())": "for p in {*model.parameters()}.difference(*(group",
    "model = Net()\nopt = SGD([p for n, p in model.named_parameters() if 'head' in n])": "for p in {*model.param",
    "model = Net()\nhead = filter(f, model.head.parameters())\nopt = SGD(head)": "for p in {*model.parameters()}",
    "old, new = 1, 2\nteacher = Net()\nmodel = Net()\nopt = SGD(model.parameters())": "teacher.requires_grad_(False)",
    "net = resnet18(weights=w).cuda()\nhead = nn.Linear(1, 1)\nopt = SGD(head.parameters())": "\nnet.requires_grad_(",
    "model = Net()\nopt = SGD(model.parameters())": "",
    "d, g = Net(), 1\nb = Net()\no1 = SGD(b.parameters())\no2 = SGD(d.parameters())": "",
    "loss = nn.CrossEntropyLoss()\nmodel = Net()\nopt = SGD(model.parameters())": "",
    "head = nn.Linear(1, 1)\nmodel = nn.Sequential(Net(), head)\nopt = SGD(model.parameters())": "",
    "net = resnet18()\nhead = nn.Linear(net.fc.in_features, 1)\nopt = SGD(head.parameters())": "net.requires_grad_(F",
    "b = Net()\nopt = SGD(b.parameters())\nlate = Net()": "",
    "config = BertConfig()\nmodel = Net()\nopt = SGD(model.parameters())": "",
    "model = Net()\ndef f():\n    a = SGD(model.a.parameters())\nb = SGD(model.b.parameters())": "",
}
IMPORTS = """
from torch import nn
from torch.optim import SGD
from torchvision.models import resnet18
from transformers import BertConfig
"""
LIGHTNING = """
class Tuner(L.LightningModule):
    def __init__(self):
        self.backbone = Net()
        self.head = nn.Linear(1, 1)

    def configure_optimizers(self):
        return SGD(self.head.parameters())
"""


@pytest.mark.parametrize("program", FREEZES)
def test_what_is_frozen_is_what_no_optimizer_of_the_source_holds(program: str) -> None:
    text = f"{IMPORTS}class Net(nn.Module):\n    pass\n{program}\n"
    after = edited("freeze_unused", text)
    assert (after != text) == bool(FREEZES[program]) and FREEZES[program] in after


def test_a_module_of_lightnings_freezes_its_backbone_where_it_makes_its_optimizer() -> None:
    text = f"from torch import nn\nfrom torch.optim import SGD\nclass Net(nn.Module):\n    pass\n{LIGHTNING}"
    assert "        self.backbone.requires_grad_(False)\n        return SGD" in edited("freeze_unused", text)
    whole = text.replace("self.head.parameters()", "self.parameters()")
    assert edited("freeze_unused", whole) == whole


def test_of_a_model_only_what_the_optimizer_holds_keeps_its_gradients() -> None:
    text = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
part = model[1]
opt = torch.optim.SGD([p for n, p in model.named_parameters() if n.startswith("1")], 0.1)
"""
    model = module(edited("freeze_unused", text))["model"]
    assert [p.requires_grad for p in model.parameters()] == [False, False, True, True]


INFERS = '''import torch
def loop(model, data):
    for epoch in range(2):
        for x in data:
            y = model(x)  # 5
            print("""a
b""", y)
        loss(model).backward()

def forward(self, x):
    return self.layer(x)  # 11

@torch.inference_mode()
def quick(model, x):
    return model(x)  # 15

async def served(model, x):
    y = model(x)  # 18
    return y

class Held:
    @timed
    def score(self, x):
        return self.model(x)  # 24

for x in data:
    if x:
        score(x)  # 28
    else:
        with torch.no_grad():
            other(x)  # 31
x = 1; y = model(x)  # 32
z = model(x); z.backward()  # 33
'''


@pytest.mark.parametrize(
    ("line", "there"),
    [
        (5, '        with torch.no_grad():\n            for x in data:\n                y = model(x)  # 5\n'
            '                print("""a\nb""", y)\n        loss(model)'),
        (18, "    with torch.no_grad():\n        y = model(x)  # 18\n    return y"),
        (24, "    @timed\n    @torch.no_grad()\n    def score"),
        (28, "\nwith torch.no_grad():\n    for x in data:\n        if x:\n            score(x)  # 28\n        else:\n"
             "            with torch.no_grad():\n                other(x)  # 31\nx = 1"),
        (11, ""), (15, ""), (31, ""), (32, ""), (33, ""), (99, ""),
    ],
)  # fmt: skip
def test_the_graph_is_left_out_where_nothing_trains(line: int, there: str) -> None:
    after = edited("no_grad_evaluation", INFERS, line)
    assert there in after and (after == INFERS) == (not there)


def test_empty_lines_stay_empty() -> None:
    after = edited("no_grad_evaluation", "import torch\nfor x in data:\n    y = model(x)\n\n    print(y)\n", 3)
    assert after.endswith("        y = model(x)\n\n        print(y)\n")


def test_what_wants_torch_imports_it() -> None:
    after = edited("no_grad_evaluation", "from net import model\nfor x in data:\n    model(x)\n", 3)
    assert after.startswith("from net import model\nimport torch\n")
    assert "with torch.no_grad():\n    for x in data:" in after


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("opt.zero_grad(set_to_none=False)", "opt.zero_grad(set_to_none=True)"),
        ("model.zero_grad(False)", "model.zero_grad(True)"),
        ("opt.zero_grad()", "opt.zero_grad()"),
        ("opt.zero_grad(set_to_none=flag)", "opt.zero_grad(set_to_none=flag)"),
        ("for p in ps:\n    if p.grad is not None:\n        p.grad.zero_()",
         "for p in ps:\n    if p.grad is not None:\n        p.grad = None"),
        ("w.grad.data.zero_()", "w.grad = None"),
        ("x = w.grad.zero_()", "x = w.grad.zero_()"),
        ("w.data.zero_()", "w.data.zero_()"),
    ],
)  # fmt: skip
def test_gradients_are_dropped_where_zeros_are_written(line: str, after: str) -> None:
    assert edited("set_to_none", line) == after


@pytest.mark.parametrize(
    ("rest", "sparse"),
    [
        ("o = torch.optim.SGD(m.parameters(), 0.1)", True), ("o = torch.optim.Adagrad(m.parameters())", True),
        ("o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0)", True), ("o = 1", False),
        ("o = torch.optim.SGD(m.parameters(), 0.1, 0.9)", False), ("o = torch.optim.Adam(m.parameters())", False),
        ("o = torch.optim.SGD(m.parameters(), 0.1, weight_decay=wd)", False),
        ("o = torch.optim.SGD(m.parameters(), 0.1)\ntorch.nn.utils.clip_grad_norm_(m.parameters(), 1)", False),
        ("o = torch.optim.SGD(m.parameters(), 0.1)\no2 = torch.optim.Adam(n.parameters())", False),
    ],
)  # fmt: skip
def test_gradients_are_sparse_only_where_every_optimizer_takes_them(rest: str, sparse: bool) -> None:
    text = f"import torch\nm = torch.nn.Embedding(9, 2)\n{rest}\n"
    assert ("sparse=True" in edited("sparse_gradient", text)) == sparse


FROZEN = "torch._inductor.config.freezing = True"
READY = {
    "model = Net().eval()": f"model = Net().eval()\n{FROZEN}\nmodel = torch.compile(model)",
    "model.eval()": f"model.eval()\n{FROZEN}\nmodel = torch.compile(model)",
    "self.model.eval().to(device)":
        f"self.model.eval().to(device)\n{FROZEN}\nself.model = torch.compile(self.model)",
    "run(Net().eval().cuda(), 1)":
        f"ready_model = Net().eval().cuda()\n{FROZEN}\nready_model = torch.compile(ready_model)\nrun(ready_model, 1)",
    "self.eval()": "",
    "for x in y:\n    model.eval()": "",
    "model.eval()\nloss.backward()": "",
    "model.eval()\ntrainer.fit(model)": "",
    "df.eval('a + b')": "",
}  # fmt: skip


@pytest.mark.parametrize("line", READY)
def test_a_model_is_made_ready_where_it_is_put_into_eval_mode(line: str) -> None:
    text = f"import torch\nx = 1\n{line}\n"
    after = edited("compile_frozen", text)
    assert (READY[line] in after) if READY[line] else after == text


def test_norms_are_folded_only_where_there_are_some() -> None:
    text = "import torch\nmodel = Net().eval()\n"
    assert edited("fold_batch_norm", text) == text
    assert ".fuse(model)" in edited("fold_batch_norm", f"{text}BatchNorm2d\n")


def test_what_the_program_trains_elsewhere_counts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nimport steps\nfrom nets.big import Net\nmodel = Net().eval()\n")
    (tmp_path / "steps.py").write_text("def step(loss):\n    loss.backward()\n")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "big.py").write_text("from . import small\nimport json\n")
    (tmp_path / "nets" / "small.py").write_text("x = 1\n")
    files = files_of(["python", "train.py"], tmp_path)
    assert [file.name for file in files] == ["train.py", "steps.py", "big.py", "small.py"]
    assert files_of(["python", "-m", "nets.big"], tmp_path)[0].name == "big.py"
    assert files_after(catalogue.edit("compile_frozen"), files, tmp_path) == {}
    assert [*files_after(catalogue.edit("compile_frozen"), files[:1], tmp_path)] == ["train.py"]


def test_a_file_elsewhere_is_no_part_of_the_program(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out.py"
    inside.mkdir()
    outside.write_text("opt.zero_grad(False)\n")
    (inside / "train.py").symlink_to(outside)
    assert files_of(["python", "train.py"], inside) == []
    assert files_after(catalogue.edit("set_to_none"), [outside], inside) == {}


def test_all_edits_have_a_title_and_a_safety_and_rules_name_most() -> None:
    for name in edit_names():
        each = catalogue.edit(name)
        assert each.title and each.safety in SAFETY
    assert {name for name in edit_names() if not codes_of(name)} == {
        "assistant_model", "identity", "int8_dynamic", "thread_affinity",
    }  # fmt: skip


def codes_of(name: str) -> list[str]:
    """Findings that the edit serves: the rules name what helps."""
    return [code for code, rule in rules.load().items() if name in rule.remedies]


PAGES = {page.stem: page.read_text(encoding="utf-8") for page in Path(edits.__path__[0]).glob("*.md")}


@pytest.mark.parametrize("name", edit_names())
def test_the_page_of_an_edit_shows_what_it_makes(name: str) -> None:
    each, page = catalogue.edit(name), PAGES[name]
    assert page.startswith(f"# {name}: ") and all(part in page for part in ("**When.", "**Safety.", *codes_of(name)))
    assert f"**Safety.** {each.safety.capitalize()}" in page
    shown = re.search(r"```diff\n(.*?)```", page, re.S)
    assert (shown is not None) == (each.change is not None)
    if shown is not None:
        lines = shown[1].splitlines()
        before, after = ("\n".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        guilty = [number for number, line in enumerate(before.splitlines(), 1) if "# <- BRR" in line]
        assert edited(name, before, *guilty) == after
    elif found := each.environment():
        assert all(variable in page for variable in found)
        assert all(from_env(f"{variable}={value}").env == {variable: value} for variable, value in found.items())


def test_every_page_is_of_an_edit() -> None:
    assert tuple(sorted(PAGES)) == edit_names() == tuple(each.name for each in catalogue._EDITS)


def test_a_live_remedy_has_its_form_for_the_source_too() -> None:
    assert "fused=True" in edited("fused_optimizer", LOOP)
    with pytest.raises(GobrrrError, match="no form for the source"):
        catalogue.edit("trim_padding")


def test_findings_offer_the_edits_of_their_program(tmp_path: Path) -> None:
    script, command = tmp_path / "train.py", ["python", "train.py"]
    script.write_text("opt.zero_grad(set_to_none=False)\n")
    found = (finding(script, 1, code="BRR207", remedies=("set_to_none", "fused_optimizer", "packing")),
             finding(script, 1, code="BRR999", remedies=("set_to_none", "thread_affinity", "of_others")))  # fmt: skip
    told = msgspec.structs.replace(starved(), findings=found)
    offers = catalogue.offers(told, command, tmp_path)
    assert [(each.name, each.code) for each in offers] == [("set_to_none", "BRR207"), ("thread_affinity", "BRR999")]
    assert offers[0].files == {"train.py": b"opt.zero_grad(set_to_none=True)\n"} and offers[0].env == {}
    assert offers[1].files == {} and offers[1].env["OMP_PLACES"] == "cores"
    done = subprocess.run(["git", "apply"], cwd=tmp_path, input=offers[0].diff, text=True)
    assert done.returncode == 0 and script.read_bytes() == offers[0].files["train.py"]
    script.write_text("import torch\no = torch.optim.AdamW(p)\n")
    assert [each.name for each in catalogue.offers(told, command, tmp_path)] == ["thread_affinity"]
    fused, _ = catalogue.offers(told, command, tmp_path, live=True)
    assert fused.name == "fused_optimizer" and "fused=True" in fused.diff
    _, named = catalogue.offers(told, command, tmp_path, named=("foreach_optimizer", "int8_dynamic"))
    assert (named.name, named.code) == ("foreach_optimizer", "") and "foreach=True" in named.diff


def test_an_edit_is_placed_by_the_findings_that_name_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfor x in a:\n    f(x)\nfor x in b:\n    g(x)\n")
    found = (finding(script, 3, remedies=("compile",)), finding(Path("train.py"), 5, remedies=("no_grad_evaluation",)))
    change = catalogue.placed("no_grad_evaluation", msgspec.structs.replace(starved(), findings=found), tmp_path)
    (both,) = texts(read([script]), [change] if change is not None else [], tmp_path).values()
    assert both[1] == "import torch\nfor x in a:\n    f(x)\nwith torch.no_grad():\n    for x in b:\n        g(x)\n"


def test_another_allocator_goes_before_what_is_preloaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = catalogue.edit("preloaded_allocator").environment
    monkeypatch.setattr(catalogue, "find_library", lambda name: {"tcmalloc": "libtcmalloc.so.4"}.get(name))
    monkeypatch.setitem(os.environ, "LD_PRELOAD", "libother.so")
    assert allocator() == {"LD_PRELOAD": "libtcmalloc.so.4:libother.so"}
    monkeypatch.setattr(catalogue, "find_library", lambda name: None)
    assert allocator() == {}


def test_what_was_kept_for_programs_of_others_has_its_place_in_nine_of_ten() -> None:
    """The tunings of the zoo; the optimizers of three are made by a library."""
    zoo = Path(__file__).parents[2] / "benchmarks"
    kept: set[tuple[str, str]] = set()
    for file in (zoo / "results").glob("zoo-tunes-*.json"):
        programs = json.loads(file.read_text()).get("programs", [])
        kept |= {(each["name"], name) for each in programs if each.get("tune") for name in each["tune"].get("kept", ())}
    found: list[bool] = []
    for program, name in sorted(kept):
        with contextlib.suppress(GobrrrError):  # without a form for the source
            each, script = catalogue.edit(name), zoo / "zoo" / "programs" / f"{program}.py"
            files = files_of(["python", script.name], script.parent)
            found.append(bool(each.environment()) or files_after(each, files, script.parent) != {})
    assert len(found) > 30 and sum(found) >= 0.9 * len(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("freeze_unused", "frozen_backbone"), ("gc_freeze", "collects_garbage"),
        ("no_grad_evaluation", "evaluation_with_graph"), ("set_to_none", "zero_grad_writes_zeros"),
        ("sparse_gradient", "dense_embedding_gradients"), ("fused_attention", "hand_made_attention"),
        ("chunked_loss", "logits_for_every_frame"), ("unchecked_distributions", "checked_distributions"),
    ],
)  # fmt: skip
def test_prove_accepts_the_edit_of_a_planted_program(name: str, program: str, tmp_path: Path) -> None:
    sick = BY_NAME[program].script("sick")
    script = tmp_path / "train.py"
    script.write_bytes(sick.read_bytes())
    guilty = finding(script, *BY_NAME[program].guilty_lines()[:1], remedies=(name,))
    (offer,) = catalogue.offers(
        msgspec.structs.replace(starved(), findings=(guilty,)), ["python", "train.py"], tmp_path
    )
    (tmp_path / "edit.diff").write_text(offer.diff)
    command = [sys.executable, "-m", "gobrrr", "prove", "--json", "--minutes", "5", "--patch", "edit.diff", "train.py"]
    done = subprocess.run([*command, "--steps", "100000"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr  # faster, or not settled on busy cores
    assert json.loads(done.stdout)["guard"]["verdict"] in ("exact", "equivalent"), done.stderr
