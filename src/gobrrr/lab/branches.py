"""What does a branch on a tensor's values cost a graph?"""

from __future__ import annotations

from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr.lab.bench import Bench
from gobrrr.lab.model import Figure, Row

BRANCHES = 3
SAID = {"asked": "if on values", "cond": "torch.cond", "known": "no branch"}


def chain(torch: Any, kind: str) -> Any:
    """A module of pointwise links. asked: each looks at its values by `if`; cond: by torch.cond; known: the way that
    positive numbers take, without looking."""

    def up(x: Any) -> Any:
        return (1.1 * x + 0.1).relu()

    def down(x: Any) -> Any:
        return (0.9 * x - 0.1).relu()

    class Chain(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            for _ in range(BRANCHES):
                if kind == "cond":
                    x = torch.cond(x.mean() > 0, up, down, (x,))
                elif kind == "known" or x.mean() > 0:
                    x = up(x)
                else:
                    x = down(x)
            return x

    return Chain().eval()


def breaks(torch: Any, module: Any, x: Any) -> int:
    """Places where torch.compile leaves the graph for Python, by dynamo's own account."""
    return int(torch._dynamo.explain(module)(x).graph_break_count)


def refused(torch: Any, module: Any, x: Any) -> bool:
    """Whether torch.export makes no graph of it."""
    try:
        torch.export.export(module, (x,))
    except Exception:  # what it raises differs by version
        return True
    return False


def measured_branches(bench: Bench, of: int) -> list[Row]:
    """Breaks, refusals and times of a chain that asks at each link, by each kind; five parts in `of` of the time."""
    torch, rows = bench.torch, []
    x = torch.rand(bench.size(1 << 16, 8))
    kinds = {kind: chain(torch, kind) for kind in ("asked", "cond", "known")}
    with torch.no_grad():
        for kind, module in kinds.items():
            expected = float(BRANCHES) if kind == "asked" else 0.0
            rows.append(Row(f"{SAID[kind]}: graph breaks", Figure.exact(breaks(torch, module, x)), expected))
        for kind in ("asked", "cond"):
            no = float(refused(torch, kinds[kind], x))
            rows.append(Row(f"{SAID[kind]}: export refuses", Figure.exact(no), float(kind == "asked")))
        rows.append(Row("if on values, eager", bench.time(lambda: kinds["asked"](x), of=of), unit="ns"))
        for kind, module in kinds.items():
            compiled = torch.compile(module)
            if not torch.allclose(compiled(x), kinds["asked"](x)):
                raise GobrrrError(f"{SAID[kind]}: the graph computes something else")
            rows.append(Row(f"{SAID[kind]}, compiled", bench.time(lambda c=compiled: c(x), of=of), unit="ns"))  # type: ignore[misc]
    return rows
