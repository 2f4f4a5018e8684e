"""How much does a branch on a tensor's values cost a graph?"""

from __future__ import annotations

from typing import Any

from gobrrr.errors import GobrrrError
from gobrrr_lab.measure.bench import Bench
from gobrrr_lab.measure.result import Figure, Row

BRANCHES = 3  # links of the chain, each with a branch; proposed: more than one; a longer chain would settle it


def measured_branches(bench: Bench, of: int) -> list[Row]:
    """Breaks, refusals and times of a chain that asks at each link, by each kind; four parts in `of` of the time."""
    torch = bench.torch
    x = torch.rand(bench.size(1 << 16, 8))
    kinds = chains(torch)
    rows = []
    with torch.no_grad():
        for name, module in kinds.items():
            graphs, breaks = counted(torch, module, x)
            if name == "if in a loop":
                rows.append(Row(f"{name}: graphs", Figure.exact(graphs)))
                continue
            rows.append(Row(f"{name}: graph breaks", Figure.exact(breaks), BRANCHES if name == "if" else 0.0))
        for name in ("if", "torch.cond"):
            no = float(refused(torch, kinds[name], x))
            rows.append(Row(f"{name}: export refuses", Figure.exact(no), float(name == "if")))
        rows.append(Row("if, eager", bench.time(lambda: kinds["if"](x), of=of), unit="ns"))
        for name in ("if", "torch.cond", "no branch"):
            compiled = torch.compile(kinds[name])
            if not torch.allclose(compiled(x), kinds["if"](x)):
                raise GobrrrError(f"{name}: the graph computes something else")
            rows.append(Row(f"{name}, compiled", bench.time(lambda c=compiled: c(x), of=of), unit="ns"))  # type: ignore[misc]
    return rows


def chains(torch: Any) -> dict[str, Any]:
    """Modules of three pointwise links. Each looks at its values by `if`, in a line of its own or in a loop; by
    torch.cond; or takes the way of positive numbers without looking."""

    class If(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            x = _up(x) if x.mean() > 0 else _down(x)
            x = _up(x) if x.mean() > 0 else _down(x)
            return _up(x) if x.mean() > 0 else _down(x)

    class Loop(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            for _ in range(BRANCHES):
                x = _up(x) if x.mean() > 0 else _down(x)
            return x

    class Cond(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            for _ in range(BRANCHES):
                x = torch.cond(x.mean() > 0, _up, _down, (x,))
            return x

    class Known(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return _up(_up(_up(x)))

    return {"if": If().eval(), "if in a loop": Loop().eval(), "torch.cond": Cond().eval(), "no branch": Known().eval()}


def counted(torch: Any, module: Any, x: Any) -> tuple[float, float]:
    """(graphs, breaks between them) that torch.compile makes of it, by dynamo's own account. A branch in a loop is no
    break: the function is left to Python, and what it calls becomes a graph."""
    said = torch._dynamo.explain(module)(x)
    return float(said.graph_count), float(said.graph_break_count)


def refused(torch: Any, module: Any, x: Any) -> bool:
    """Whether torch.export makes no graph of it."""
    try:
        torch.export.export(module, (x,))
    except Exception:  # what it raises differs by version
        return True
    return False


def _up(x: Any) -> Any:
    return (1.1 * x + 0.1).relu()


def _down(x: Any) -> Any:
    return (0.9 * x - 0.1).relu()
