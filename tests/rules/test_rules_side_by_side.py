"""BRR119 and its edit: linear layers of the same input, found by source and products, and computed as one."""

from __future__ import annotations

import ast

import pytest

from gobrrr.ledger.model.ledger import Statement
from gobrrr.recording.model.facts import Span
from gobrrr.rehearsal.scenes import scene
from gobrrr.remedies.edits import catalogue
from gobrrr.rules.compute.side_by_side import of_one_input
from gobrrr.rules.model.finding import Finding
from tests.support.handmade import Case, machine, product
from tests.support.patching import patched

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.n, self.out = nn.Linear(8, 4, bias=False), nn.Linear(8, 8)
        self.other = nn.LSTM(8, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 4 * n) for n in (1, 2, 3)])
        self.two = nn.ModuleList((nn.Linear(8, 8), nn.Linear(8, 8)))
        self._two, self.bare = None, nn.ModuleList()
        self.none = None
        self.mixed = nn.ModuleList([nn.Linear(8, 8), self.other])

    def forward(self, x, y):
{body}


net = Net().eval()
"""
TOGETHER = (
    "q, k, v = self.q(x), self.k(x), self.v(x)\nreturn self.out(q + k + v)",
    "q = self.q(x).relu()\ny = q * 2\nk = self.k(x)\nreturn (q + k + self.v(x)) * y",
    "if len(x):\n    x = self.out(x)\n    return self.q(x) * self.k(x) * self.v(x)\nreturn x",
    "x = self.q(x) + self.k(x) - self.v(x)\nreturn x",
)
LISTS = (
    "return torch.stack([each(x) for each in self.two] + [x])",
    "return torch.cat([head(x) for head in self.heads], -1)",
    "a = x * 2\nlogits = [head(a) for head in self.two]\nreturn torch.stack(logits).sum(0) + y",
)
APART = (
    "return self.q(x) + self.k(y)",
    "x = self.q(x)\nreturn self.k(x)",
    "q = self.q(x)\nx += 1\nreturn q + self.k(x)",
    "q = self.q(x)\nx[0] = 1\nreturn q + self.k(x)",
    "q = self.q(x)\nx.clamp_(0)\nreturn q + self.k(x)",
    "q = self.q(x)\nif len(q):\n    x = q\nreturn q + self.k(x)",
    "return self.q(x) + (self.k(x) if len(x) else 0)",
    "return self.q(x) + self.q(x)",
    "return self.q(x) + self.other(x)[0]",
    "return self.q(x) + self.k(x + 1)",
    "return torch.cat([each(x) for each in self.mixed], -1)",
    "return torch.cat([each(x) for each in self.two if len(x)], -1)",
    "return (x := x + 1) + sum([each(x) for each in self.two])",
    "return x.add_(1) + sum([each(x) for each in self.two])",
    "return (x := x + 1) + self.q(x) + self.k(x)",
    "return [each(x) for each in self.two for _ in y][0]",
    "return [each(x, y) for each in self.two][0]",
    "return [each(x, out=y) for each in self.two][0]",
    "return torch.cat([self.q(x) for each in self.two], -1)",
    "return torch.cat([each(x + 1) for each in self.two], -1)",
    "return torch.cat([each(x) for each in (self.other,)][0], -1)",
    "return torch.cat([each(x) for each in self.two] if len(x) else [x], -1)",
)


def written(body: str) -> str:
    return NET.replace("{body}", "\n".join(f"        {line}" for line in body.splitlines()))


@pytest.mark.parametrize("body", TOGETHER)
def test_layers_of_one_input_are_found(body: str) -> None:
    (calls,) = of_one_input(ast.parse(written(body)))
    assert [ast.unparse(each.func) for _, each in calls] == ["self.q", "self.k", "self.v"]


@pytest.mark.parametrize("body", APART)
def test_what_looks_alike_is_left_alone(body: str) -> None:
    assert of_one_input(ast.parse(written(body))) == []
    assert patched(written(body), [catalogue.edit("products_together").change]) == written(body)


def case(body: str, rows: int = 8, calls: float = 900.0, ms: float = 100.0) -> Case:
    """Lines of the file are its own; its text is as ast.unparse writes it, without comments and blank lines."""
    where = (Span("net.py", 70, "Net.forward"),)
    tree = ast.parse(written(body))
    line = next(ast.unparse(node) for node in ast.walk(tree)
                if isinstance(node, (ast.Assign, ast.Return)) and "self.q(x)" in ast.unparse(node))  # fmt: skip
    ops = (product(rows, 8, 8, name="mm", gflops=0.0001, where=where, calls=calls, parents=("aten::linear",)),)
    return Case(ops=ops, ms=ms, extra={"statements": (Statement(where[0], line, module=ast.unparse(tree)),)})


def told(made: Case) -> list[Finding]:
    return made.raised("BRR119")


def test_small_products_of_one_input_are_told_with_their_line() -> None:
    """Two thirds of the calls, four ops of 1 us each, are needless; but no more than was there."""
    for calls, ns in ((1500.0, 1500 * 4 * 1000), (3000.0, case(TOGETHER[0]).ops[0].ns)):
        (found,) = told(case(TOGETHER[0], calls=calls))
        assert found.saving.expected_ns == pytest.approx(2 / 3 * ns)
    assert found.where[0].file == "net.py" and found.remedies == ("products_together",)
    assert found.evidence["layers"].value == 3


def test_products_of_other_statements_do_not_count() -> None:
    made = case(TOGETHER[0], calls=1500.0)
    other = Span("net.py", 71, "Net.forward")
    more = product(8, 8, 8, name="mm", gflops=0.00001, where=(other,), calls=9.0, parents=("aten::linear",))
    (known,) = made.extra["statements"]
    said = (known, Statement(other, "return self.out(q + k + v)", module=known.module))
    both = Case(ops=(*made.ops, more), ms=100.0, extra={"statements": said})
    assert [each.evidence["products"].value for each in told(both)] == [1500.0]


@pytest.mark.parametrize(
    "made", [case(APART[0], calls=3000.0), case(TOGETHER[0], calls=3.0), case(TOGETHER[0], calls=3000.0, ms=1000.0)]
)
def test_other_inputs_and_few_calls_are_silent(made: Case) -> None:
    assert not told(made)


def test_the_layers_are_rehearsed_apart_and_as_one() -> None:
    found = scene("products_together", case(TOGETHER[0]).ledger, machine(), 3.0)
    assert found is not None
    (part,) = found.parts
    assert part.calls == 300.0 and part.today is not None and part.then is not None
    assert part.today["dims"] == [8, 8, 8, 8, 8] and (part.today["joined"], part.then["joined"]) == (False, True)
    assert scene("products_together", case(APART[0]).ledger, machine(), 3.0) is None


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_both_sides_can_be_played(joined: bool, backward: bool) -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.rehearsal.callables import make

    side = {"make": "together", "dims": [4, 8, 8, 2], "backward": backward, "torch_dtype": "float32", "joined": joined}
    made = make(torch, side, "cpu")()
    assert backward or [tuple(each.shape) for each in made] == [(4, 8), (4, 2)]


@pytest.mark.parametrize("body", LISTS)
def test_a_list_of_layers_is_found(body: str) -> None:
    (((_, made),),) = of_one_input(ast.parse(written(body)))
    assert isinstance(made, ast.ListComp)


@pytest.mark.parametrize("body", TOGETHER + LISTS)
def test_the_edit_gives_the_same_numbers_for_other_weights_too(body: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    before, after = {}, {}
    text = patched(written(body), [catalogue.edit("products_together").change])
    assert text.count("joined(x)") + text.count("joined(a)") == 1
    exec(written(body), before)
    exec(text, after)
    assert patched(text, [catalogue.edit("products_together").change]) == text
    x = torch.randn(5, 8)
    for _ in range(2):  # the second time with weights that were loaded over those that are joined
        before["net"].load_state_dict({name: torch.randn_like(p) for name, p in before["net"].state_dict().items()})
        after["net"].load_state_dict(before["net"].state_dict())
        for context in (torch.no_grad, torch.enable_grad, torch.no_grad):
            with context():
                torch.testing.assert_close(after["net"](x, x), before["net"](x, x), rtol=1e-4, atol=1e-3)


def test_layers_that_do_more_are_called_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    made = {}
    exec(patched(written(TOGETHER[0]), [catalogue.edit("products_together").change]), made)
    x, seen = torch.randn(5, 8), []
    made["net"].q.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        made["net"](x, x)
        made["net"].k = torch.nn.Identity()
        assert made["net"](x, x).shape == (5, 8) and seen == [1, 1]


@pytest.mark.parametrize("owner", ["nn.Module", "object"])
def test_no_layers_and_owners_that_are_no_modules_run_as_before(owner: str) -> None:
    pytest.importorskip("torch")
    made = {}
    text = written("return [each(x) for each in self.none]" if owner == "nn.Module" else TOGETHER[0])
    text = text.replace("self.none = None", "self.none = nn.ModuleList([nn.Linear(8, 8) for _ in range(0)])")
    if owner == "object":
        text = text.replace("(nn.Module)", "").replace("        super().__init__()\n", "")
        text = text.replace("def forward", "def __call__").replace("Net().eval()", "Net()")
    exec(patched(text, [catalogue.edit("products_together").change]), made)
    import torch

    with torch.no_grad():
        assert len(made["net"](torch.ones(2, 8), None)) == (0 if owner == "nn.Module" else 2)


def test_a_program_that_trains_keeps_its_layers() -> None:
    text = f"{written(TOGETHER[0])}loss.backward()\n"
    assert patched(text, [catalogue.edit("products_together").change]) == text
