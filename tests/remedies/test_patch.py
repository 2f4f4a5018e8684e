"""A recipe as a diff: the text at the place changes and nothing else, and patch(1) takes it."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobrrr.remedies import registry
from gobrrr.remedies.edits import catalogue
from gobrrr.remedies.edits.forms import AddStatement, BeforeTraining, Edit, SetKeyword, SwitchOff
from gobrrr.remedies.edits.program import diff, read, texts
from tests.support.patching import patched

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
        ("o = AdamW(q for q in p)", "o = AdamW((q for q in p), fused=True)"),
        ("o = AdamW(q for q in f(AdamW(p)))", "o = AdamW((q for q in f(AdamW(p, fused=True))), fused=True)"),
        ("o = AdamW((q for q in p))", "o = AdamW((q for q in p), fused=True)"),
        ("o = AdamW((p))", "o = AdamW((p), fused=True)"),
        ("o = AdamW(p, ((1)  # ) one\n ),  # )\n)", "o = AdamW(p, ((1)  # ) one\n ), fused=True,  # )\n)"),
        ("o = AdamW(p, lr=(1) # )\n)", "o = AdamW(p, lr=(1), fused=True # )\n)"),
        ("o = AdamW(*p)", "o = AdamW(*p)"),
    ],
)
def test_a_keyword_is_set_where_it_can_be(before: str, after: str) -> None:
    assert patched(before, [FUSED]) == after
    ast.parse(after)


@pytest.mark.parametrize(("given", "fused"), [("gradient_clip_val=0.25", False), ("gradient_clip_val=None", True),
                                              ("gradient_clip_val=clip", False), ("max_epochs=1", True)])  # fmt: skip
def test_where_lightning_clips_no_optimizer_is_made_fused(given: str, fused: bool) -> None:
    """Under mixed precision it refuses one: a patch of a proven recipe ended the program."""
    source = f"import torch\nimport lightning as L\no = torch.optim.AdamW(p)\nt = L.Trainer({given})\n"
    assert ("fused=True" in patched(source, [of("fused_optimizer")])) == fused


@pytest.mark.parametrize(
    ("call", "fused"),
    [
        ("SGD(p, 0.1)", True),
        ("SGD(p, 0.1, momentum=0.0)", True),
        ("SGD(p, 0.1, momentum=0.9)", False),
        ("SGD(p, momentum=args.momentum)", False),
        ("SGD(p, 0.1, 0.9)", False),
        ("AdamW(p, 0.1)", True),
    ],
)
def test_sgd_with_momentum_is_not_fused_for_its_kernel_takes_no_late_parameter(call: str, fused: bool) -> None:
    source = f"import torch\no = torch.optim.{call}\n"
    assert ("fused=True" in patched(source, [of("fused_optimizer")])) == fused


LIBRARIES = {
    "import torch\no = torch.optim.AdamW(p)\n": True,
    "import torch.optim as optim\no = optim.AdamW(p)\n": True,
    "from torch import optim as opt\no = opt.AdamW(p)\n": True,
    "def main(p):\n    from torch.optim import AdamW as A\n    return A(p)\n": True,
    "from torch.optim import *\no = AdamW(p)\n": True,
    "import bitsandbytes as bnb\no = bnb.optim.AdamW(p)\n": False,
    "from other import AdamW\no = AdamW(p)\n": False,
    "from .optim import AdamW\no = AdamW(p)\n": False,
    "from torchlike.optim import AdamW\no = AdamW(p)\n": False,
    "from other import *\no = AdamW(p)\n": False,
    "import torch\nclass AdamW:\n    pass\no = AdamW(p)\n": False,
    "def make(optim, p):\n    return optim.AdamW(p)\n": False,
    "try:\n    from other import AdamW\nexcept ImportError:\n    from torch.optim import AdamW\no = AdamW(p)\n": False,
}


@pytest.mark.parametrize("source", LIBRARIES)
def test_only_what_is_torchs_is_changed(source: str) -> None:
    after = patched(source, [FUSED])
    assert after == (source.replace("(p)\n", "(p, fused=True)\n") if LIBRARIES[source] else source)


def of(name: str) -> Edit:
    edit = catalogue.edit(name).change
    assert edit is not None
    return edit


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("fused_optimizer", "AdamW(p, foreach=True)"), ("fused_optimizer", "AdamW(p, foreach=flag)"),
        ("fused_optimizer", "AdamW(p, differentiable=True)"), ("foreach_optimizer", "AdamW(p, fused=True)"),
        ("foreach_optimizer", "Adagrad(p, 0.1, 0, 0, 0, 1e-9, None)"), ("loader_workers", "DataLoader(d, *more)"),
        ("loader_workers", "DataLoader(d, 8, True, None, None, 0)"),
        ("loader_workers", "DataLoader(d, num_workers=9999)"),
        ("pin_memory", "DataLoader(d, 8, True, None, None, 2, None, False)"),
    ],
)  # fmt: skip
def test_a_call_that_would_not_take_it_is_left_alone(name: str, call: str) -> None:
    assert patched(call, [of(name)]) == call
    assert patched(call.partition("(")[0] + "(d)", [of(name)]) != call.partition("(")[0] + "(d)"


def test_torch_takes_what_optimizers_are_given() -> None:
    for name, given in (("fused_optimizer", "foreach=False"), ("foreach_optimizer", "fused=None")):
        source = f"import torch\nmade = torch.optim.AdamW([torch.zeros(1)], {given})\n"
        found: dict[str, Any] = {}
        exec(patched(source, [of(name)]), found)
        assert found["made"].defaults[name.partition("_")[0]] is True


DATA = """from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __getitem__(self, index):
        return index
class More(Rows):
    def __iter__(self):
        return iter([])
rows = Rows()
"""
STREAMS = """from torch.utils import data
class Lines(data.IterableDataset[int]):
    pass
class Longer(Lines):
    pass
lines, count = Longer(), 3
def make():
    found = Lines()
    return found
class Holder:
    def __init__(self):
        self.lines = lines
"""


@pytest.mark.parametrize("data", ["Lines()", "lines", "make()", "holder.lines", "Mixed(rows, lines)", "unknown"])
def test_in_a_file_with_streams_only_what_has_an_index_gets_workers(data: str) -> None:
    source = f"{DATA}{STREAMS}holder = Holder()\nloader = DataLoader({data}, 8)\n"
    assert patched(source, [of("loader_workers")]) == source
    source = source.replace(f"DataLoader({data}", "DataLoader(rows")
    assert patched(source, [of("loader_workers")]) != source


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        ("unknown", True), ("More()", True), ("downstream_task", True), ("load(name, streaming=False)", True),
        ("LinesIterable()", False), ("load(name, streaming=True)", False), ("load(name, streaming=flag)", False),
    ],
)  # fmt: skip
def test_elsewhere_what_is_no_stream_gets_workers(data: str, changes: bool) -> None:
    source = f"{DATA}loader = DataLoader(dataset={data})\n"
    assert (patched(source, [of("loader_workers")]) != source) == changes


def test_what_has_only_an_iterator_is_a_stream() -> None:
    source = "class Own:\n    def __iter__(self):\n        yield 1\nloader = DataLoader(Own())\n"
    assert patched(source, [of("loader_workers")]) == source


@pytest.mark.parametrize("said", ["from typing import Iterable", "s = torch.cuda.Stream()", "logging.StreamHandler()"])
def test_other_streams_are_none_of_data(said: str) -> None:
    source = f"{said}\nloader = DataLoader(data)\n"
    assert patched(source, [of("loader_workers")]) != source


def test_a_sampler_is_no_stream() -> None:
    source = (
        f"class Draws:\n    def __iter__(self):\n        yield 1\n{DATA}s = Draws()\nl = DataLoader(log, sampler=s)\n"
    )
    assert patched(source, [of("loader_workers")]) != source


def test_workers_are_a_number_that_needs_no_import() -> None:
    found: dict[str, Any] = {"DataLoader": lambda data, num_workers: num_workers}
    exec(patched("made = DataLoader([])", [of("loader_workers")]), found)
    assert found["made"] >= 1


def test_an_edit_that_would_not_compile_is_dropped_alone() -> None:
    source = "import torch\no = AdamW(p)\n"
    assert patched(source, [AddStatement("torch.f(")]) == source
    assert patched(source, [AddStatement("torch.f("), FUSED]) == "import torch\no = AdamW(p, fused=True)\n"
    continued = "import torch\nif True: \\\n    o = torch.optim.SGD(net.parameters())\n"
    assert patched(continued, [BeforeTraining("{model}.compile()")]) == continued


def test_a_switch_goes_off() -> None:
    assert patched("f(True); g(True)", [SwitchOff(("f",))]) == "f(False); g(True)"
    assert patched("f(x)", [SwitchOff(("f",))]) == "f(x)"


def test_anomaly_mode_is_switched_off_where_that_is_what_the_argument_says() -> None:
    edit = of("anomaly_off")
    source = "from torch.autograd import detect_anomaly, set_detect_anomaly\n{}(True)\n"
    assert patched(source.format("set_detect_anomaly"), [edit]) == source.format("set_detect_anomaly").replace(
        "True", "False"
    )
    assert patched(source.format("detect_anomaly"), [edit]) == source.format("detect_anomaly")


def test_a_statement_goes_behind_the_imports_once() -> None:
    edit = AddStatement("torch.set_flush_denormal(True)")
    once = patched('"""Doc."""\nimport os\nimport torch\n\nx = 1\n', [edit])
    assert once == '"""Doc."""\nimport os\nimport torch\n\ntorch.set_flush_denormal(True)\n\nx = 1\n'
    assert patched(once, [edit]) == once
    assert patched("import os\n", [edit]) == "import os\nimport torch\n\ntorch.set_flush_denormal(True)\n"
    assert patched("x = 1\n", [edit]) == "x = 1\n"


@pytest.mark.parametrize(
    ("name", "called"),
    [("matmul_precision", "set_float32_matmul_precision"), ("intraop_threads", "set_num_threads"),
     ("unchecked_distributions", "set_default_validate_args"), ("flush_denormal", "set_flush_denormal"),
     ("packed_masks", "impl"), ("malloc_thresholds", "mallopt")],
)  # fmt: skip
def test_a_statement_is_left_out_where_its_own_call_is_there_alone(name: str, called: str) -> None:
    """A script that copies weights into an average had no patch for its masks."""
    edit = catalogue.edit(name).change
    assert edit is not None
    source = "import torch\nf(1)(2)\np.copy_(q); a.get_kernel(1); ctypes.CDLL(None)\n"
    assert called in patched(source, [edit])
    there = f"{source}x.{called}(1)\n"
    assert patched(there, [edit]) == there


def test_models_of_one_class_are_lowered_by_one_wrapper() -> None:
    edit = registry.remedy("bf16_autocast").edit
    source = SAVES.partition("torch.save")[0]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(patched(source, [edit]), names) if edit is not None else None
    forward = names["Net"].forward
    names["in_bfloat16"](names["other"])
    assert names["Net"].forward is forward
    x, other = names["x"], names["other"]
    assert not names["torch"].equal(
        other(x), names["torch"].nn.functional.linear(x, other.body.weight, other.body.bias)
    )


SAVES = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.body(x)


torch.manual_seed(0)
net, other, x = Net(), Net(), torch.randn(4, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
plain = torch.nn.functional.linear(x, net.body.weight, net.body.bias)
torch.save(net, "net.pt")
with torch.serialization.safe_globals([Net, torch.nn.Linear, set]):
    again = torch.load("net.pt", weights_only=True)
print(torch.equal(net(x), plain), torch.equal(again(x), net(x)), net(x).dtype)
print(torch.equal(other(x), torch.nn.functional.linear(x, other.body.weight, other.body.bias)))
"""


def test_a_model_that_is_saved_whole_is_loaded_as_before(tmp_path: Path) -> None:
    edit = registry.remedy("bf16_autocast").edit
    assert edit is not None
    assert printed(SAVES, tmp_path) == "True True torch.float32\nTrue\n"
    assert printed(patched(SAVES, [edit]), tmp_path) == "False True torch.float32\nTrue\n"


WHERE = """
x = torch.empty(1 << 22)
heap = next(line for line in open("/proc/self/maps") if "[heap]" in line).split(" ")[0].split("-")
print(int(heap[0], 16) <= x.data_ptr() < int(heap[1], 16))
"""


@pytest.mark.skipif(registry.remedy("malloc_thresholds").probe() != "", reason="not glibc")
def test_large_blocks_come_from_the_heap_where_that_is_written_down(tmp_path: Path) -> None:
    edit = registry.remedy("malloc_thresholds").edit
    assert edit is not None
    once = patched(f"import torch\n{WHERE}", [edit])
    assert patched(once, [edit]) == once
    assert printed(f"import torch\n{WHERE}", tmp_path) == "False\n" and printed(once, tmp_path) == "True\n"


def test_a_statement_takes_a_line_of_its_own() -> None:
    edit = AddStatement("torch.f()  # why")
    assert patched("import torch  # noqa\nx = 1", [edit]) == "import torch  # noqa\n\ntorch.f()  # why\nx = 1"
    assert patched("import torch; x = 1", [edit]) == "import torch; x = 1"


def test_what_the_program_sets_itself_is_not_set_twice() -> None:
    edit = registry.remedy("intraop_threads").edit
    source = "import torch\n\ntorch.set_num_threads(1)\n"
    assert edit is not None and patched(source, [edit]) == source
    assert "set_num_threads" in patched("import torch\n", [edit])


def test_patch_takes_the_diff(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom torch.optim import AdamW\n\no = AdamW(p)\n# end")
    edits = [edit for name in registry.names() if (edit := registry.remedy(name).edit) is not None]
    text = diff(texts(read([script, script, tmp_path / "missing.py"]), edits, tmp_path))
    assert text.startswith("--- a/train.py\n+++ b/train.py\n") and text.count("+++") == 1
    wanted = patched(script.read_text(), edits)
    done = subprocess.run(["patch", "-p1"], cwd=tmp_path, input=text, text=True, capture_output=True)
    assert done.returncode == 0 and script.read_text() == wanted, done.stdout


LINES = "import torch\nfrom torch.optim import AdamW\n\nx = 1\n\n\n\no = AdamW(p)\n# end"


@pytest.mark.parametrize(
    "source",
    [
        LINES.replace("\n", "\r\n"), LINES.replace("\n", "\r"), LINES.replace("x = 1\n", "x = 1\r\n"),
        LINES.replace("x = 1", "\f\nx = 1"), LINES.replace("x = 1", 'x = "\u2028 \x85"  # \x1c\n'),
        LINES.replace("x = 1", 'x = """a\f\r\nb"""'), "\ufeff" + LINES,
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["train.py", "my train.py"])
@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1"]])
def test_tools_take_the_diff_whatever_ends_a_line(source: str, name: str, tool: list[str], tmp_path: Path) -> None:
    script = tmp_path / name
    script.write_bytes(source.encode())
    edits = [edit for each in registry.names() if (edit := registry.remedy(each).edit) is not None]
    wanted, text = patched(source, edits), diff(texts(read([script]), edits, tmp_path))
    done = subprocess.run(tool, cwd=tmp_path, input=text.encode(), capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert script.read_bytes() == wanted.encode() and "fused=True" in wanted
    assert wanted[0] == source[0], "the mark before the text stays"
    if "\n" not in source.replace("\r\n", ""):
        assert "\n" not in wanted.replace("\r\n", "")


def test_one_file_is_changed_once_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("o = AdamW(p)\n")
    (tmp_path / "other.py").symlink_to("train.py")
    assert diff(texts(read([tmp_path / "train.py", tmp_path / "other.py"]), [FUSED], tmp_path)).count("+++") == 1


def test_calls_that_are_known_are_those_of_their_own_file(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("more.py", "train.py")]
    for file in files:
        file.write_text(LINES)
    edit = replace(FUSED, seen=((files[1].resolve(), 8),))
    assert diff(texts(read(files), [edit], tmp_path)).count("+++") == 1 and "b/train.py" in diff(
        texts(read(files), [edit], tmp_path)
    )


def test_a_name_that_would_break_the_diff_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a\n+++ b.py").write_text("o = AdamW(p)\n")
    assert diff(texts(read(tmp_path.glob("*.py")), [FUSED], tmp_path)) == ""


def test_what_is_not_python_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def (")
    (tmp_path / "b.py").write_bytes(b"\xff\xfe AdamW(p)")
    assert diff(texts(read([tmp_path / "a.py", tmp_path / "b.py"]), [FUSED], tmp_path)) == ""


TRAINS = '''"""Trains a little."""
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    x, y = torch.randn(16, 3, 8, 8), torch.randint(0, 4, (16,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.9f} {loss.dtype}")


main()
'''
UNDER = """
import runpy
from gobrrr.remedies.mechanism.applying import install
from gobrrr.remedies.mechanism.seams import Seams
install(Seams(lambda *said: None, print), ["{name}"])
runpy.run_path("train.py", run_name="__main__")
"""


def printed(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "bf16_autocast",
        "compile",
        "fused_optimizer",
        "intraop_threads",
        "malloc_thresholds",
    ],
)
def test_a_program_that_was_patched_computes_what_the_remedy_does(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for folder in (tmp_path, copy):
        own = "    torch.set_num_threads(1)\n"
        (folder / "train.py").write_text(TRAINS.replace(own, "") if name == "intraop_threads" else TRAINS)
    edit = catalogue.edit(name).change
    assert edit is not None
    text = diff(texts(read([copy / "train.py"]), [edit], copy))
    assert subprocess.run(["patch", "-p1"], cwd=copy, input=text, text=True, capture_output=True).returncode == 0
    plain = printed("import runpy; runpy.run_path('train.py', run_name='__main__')", tmp_path)
    patched_one = printed("import runpy; runpy.run_path('train.py', run_name='__main__')", copy)
    assert patched_one == printed(UNDER.replace("{name}", name), tmp_path)
    assert "torch.bfloat16" not in patched_one
    if name != "intraop_threads":  # other threads, another order of sums
        assert (patched_one != plain) == (name == "bf16_autocast")


def test_statements_about_the_model_stand_before_its_optimizer_once() -> None:
    edits = [edit for name in ("bf16_autocast", "compile") if (edit := registry.remedy(name).edit) is not None]
    after = patched(TRAINS, edits)
    lines = after.splitlines()
    at = next(n for n, line in enumerate(lines) if "SGD(net" in line)
    assert "    net.compile()" in lines[:at] and "    in_bfloat16(net)" in lines[:at]
    assert after.count("def in_bfloat16") == 1 and patched(after, edits) == after
    ast.parse(after)


UPDATE = """import torch

def update(model, opt):
    grads = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()

def main():
    teacher = torch.nn.Linear(4, 4)
    kept = list(teacher.parameters())
    ema = Average(teacher.parameters())
    model = torch.nn.Linear(4, 4)
    OPT
    ema.step(model.parameters())
"""


@pytest.mark.parametrize(
    "opt",
    [
        "opt = torch.optim.SGD(model.parameters(), 0.1)",
        "optimizer: Any = Shampoo(model.parameters())\n    optimizer.step()",
        "from torch.optim import AdamW as A; a = 1\n    other = A(model.parameters())",
        "self.optimizer = make_optimizer(model.parameters())",
        "x = 1; opt = SGD(model.parameters())\n    opt = torch.optim.SGD(model.parameters())",
    ],
)
@pytest.mark.parametrize("name", ["compile", "bf16_autocast"])
def test_only_what_makes_an_optimizer_is_its_place(opt: str, name: str) -> None:
    edit = catalogue.edit(name).change
    assert edit is not None
    lines = patched(UPDATE.replace("OPT", opt), [edit]).splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith(("    model.compile", "    in_bfloat16("))]
    assert lines[at + 1].strip() == opt.splitlines()[-1 - ("step" in opt)].strip()


@pytest.mark.parametrize(
    "source", ["import torch\nx = f(net)\n", "net = f(m.parameters())\n", "import torch\nx=1; o = f(m.parameters())\n"]
)
def test_where_no_optimizer_is_seen_or_nothing_fits_the_source_stays(source: str) -> None:
    edit = registry.remedy("bf16_autocast").edit
    assert edit is not None and patched(source, [edit]) == source


COPIED = """from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_config(config)
args = TrainingArguments(output_dir="out")
TRAINER
trainer.train()
"""


@pytest.mark.parametrize(
    "trainer", ["trainer = Trainer(model=model, args=args)", "trainer = Trainer(model, args)", "Trainer(model).train()"]
)
def test_a_trainers_model_is_changed_before_the_trainer_gets_it(trainer: str) -> None:
    edits = [edit for name in ("bf16_autocast", "compile") if (edit := registry.remedy(name).edit) is not None]
    source = COPIED.replace("TRAINER", trainer)
    after = patched(source, edits)
    lines = after.splitlines()
    at = lines.index(trainer)
    assert {"model.compile()", "in_bfloat16(model)"} <= set(lines[at - 5 : at])
    assert "import torch" in lines[: lines.index("def in_bfloat16(model):")] and patched(after, edits) == after
    ast.parse(after)


@pytest.mark.parametrize(
    ("trainer", "after"),
    [
        ("Trainer(model=make(1), args=args)", "model = make(1)\nin_bfloat16(model)\nTrainer(model=model, args=args)"),
        ("Trainer(args=args, model=make(1))", "model = make(1)\nin_bfloat16(model)\nTrainer(args=args, model=model)"),
        ("Trainer(args=make(2), model=make(1))", ""), ("Trainer(args=args)", ""),
        ("model = 1\nTrainer(model=make(1))", ""), ("Trainer(make(1), args)", ""),
    ],
)  # fmt: skip
def test_a_trainers_model_gets_a_name_where_that_changes_no_order(trainer: str, after: str) -> None:
    source = f"from transformers import Trainer\n\nargs = 1\n{trainer}\n"
    edit = registry.remedy("bf16_autocast").edit
    found = patched(source, [edit]) if edit is not None else ""
    assert after in found and (found == source) == (not after)


@pytest.mark.parametrize(
    "source",
    [
        'from trl import SFTTrainer\nmodel_id = "facebook/opt-350m"\ntrainer = SFTTrainer(model=model_id)\n',
        "from trl import PPOTrainer, PPOConfig\nconfig = PPOConfig(a=1)\ntrainer = PPOTrainer(config, model)\n",
        "from transformers import Trainer\ndef model_init():\n    return 1\ntrainer = Trainer(model_init, args)\n",
        "from trl import SFTTrainer\nname = args.model\ntrainer = SFTTrainer(model=name)\n",
        "from other import Trainer\ntrainer = Trainer(model=net)\n",
        "from transformers import pipeline\nnet = make()\npipe = pipeline(model=net)\n",
        "from torch.optim import SGD\noptimizer = SGD(net.parameters())\n",
    ],
)
@pytest.mark.parametrize("name", ["compile", "bf16_autocast"])
def test_what_gives_no_model_to_a_trainer_or_lacks_an_import_is_left_alone(source: str, name: str) -> None:
    edit = catalogue.edit(name).change
    assert edit is not None and patched(source, [edit]) == source


@pytest.mark.parametrize("name", ["compile", "bf16_autocast"])
def test_what_statements_need_is_imported_above_them(name: str) -> None:
    """An import that comes later, or stands in a docstring, is none."""
    edit = catalogue.edit(name).change
    source = '"""\nimport torch\nimport gc\n"""\nimport torch\n\nopt = torch.optim.SGD(model.parameters())\nimport gc\n'
    after = patched(source, [edit]) if edit is not None else ""
    at = after.splitlines().index("opt = torch.optim.SGD(model.parameters())")
    above = ast.parse("\n".join(after.splitlines()[:at]))
    needed = {"compile": "torch._inductor.config"}.get(name, "torch")
    assert needed in {alias.name for node in above.body if isinstance(node, ast.Import) for alias in node.names}


def test_a_comment_about_a_switch_is_not_the_switch() -> None:
    edit = registry.remedy("matmul_precision").edit
    source = "import torch\n\n# torch.set_float32_matmul_precision is for GPUs\n"
    assert edit is not None and "set_float32_matmul_precision(" in patched(source, [edit])


def test_of_several_optimizers_the_first_in_the_source_counts() -> None:
    source = (
        "import torch\ndef main(net, head):\n    if head:\n        a = torch.optim.SGD(net.parameters())\n"
        "    b = torch.optim.SGD(head.parameters())\n"
    )
    lines = patched(source, [BeforeTraining("{model}.compile()")]).splitlines()
    assert [line for line in lines if "compile" in line] == ["    net.compile()"]


MAKES = "o = torch.optim.Adam(model.parameters())\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"model = Net()\nif args.adam:\n    {MAKES}", "model = Net()\nX\nif args.adam:"),
        (f"def f(model):\n    if a:\n        if b:\n            {MAKES}", "def f(model):\n    X\n    if a:"),
        (f"model = Net()\nif a:\n    pass\nelif b:\n    {MAKES}", "model = Net()\nX\nif a:"),
        (f"if a:\n    model = Net()\n    {MAKES}", "    model = Net()\n    X\n    o ="),
        (f"def g():\n    model = 1\ndef f():\n    if a:\n        model = Net()\n        {MAKES}",
         "= Net()\n        X\n        o ="),
        (f"if a:\n    pass\nelif b:\n    model = Net()\n    if c:\n        {MAKES}", "model = Net()\n    X\n    if c:"),
        (f"model = Net()\nfor e in r:\n    {MAKES}", "for e in r:\n    X\n    o ="),
    ],
)  # fmt: skip
def test_what_stands_before_training_is_in_no_branch_that_may_never_be_entered(before: str, after: str) -> None:
    """The Adam of word_language_model is made where it is asked for: the recipe's patch did nothing without."""
    found = patched(f"import torch\n{before}", [BeforeTraining("X({model})")])
    assert after in found.replace("X(model)", "X"), found
