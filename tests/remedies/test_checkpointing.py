"""The edit that checkpoints blocks: the same gradients, bit for bit, and less that is kept, by the amount."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from gobrrr.remedies.edits import program  # noqa: E402
from gobrrr.remedies.memory.memory import CheckpointBlocks  # noqa: E402

SOURCE = "import torch\nmodel = make()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(32, 128), nn.Linear(128, 32), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(nn.functional.gelu(self.up(x))))


def edited(amount: str, tmp_path: Path, before: str = SOURCE) -> str:
    (tmp_path / "train.py").write_text(before, encoding="utf-8")
    texts = program.texts(program.read([tmp_path / "train.py"]), [CheckpointBlocks(amount)], tmp_path)
    return texts["train.py"][1]


def model_after(source: str) -> Any:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 32), nn.ModuleList([Block() for _ in range(4)]))  # type: ignore[arg-type]

    names = {"make": make}
    exec(compile(ast.parse(source), "train.py", "exec"), names)
    return names["model"]


def step(model: Any) -> tuple[list[Any], int]:
    """The gradients of a step, and the bytes that its forward kept."""
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        x = model[0](torch.randn(64, 8))
        for block in model[1]:
            x = block(x)
        loss = x.square().mean()
    held = sum(kept.values())
    loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()], held


@pytest.mark.parametrize("amount", ["0.25", "0.5", "selective", "1"])
def test_gradients_are_the_same_bit_for_bit(amount: str, tmp_path: Path) -> None:
    expected, all_kept = step(model_after(SOURCE))
    found, kept = step(model_after(edited(amount, tmp_path)))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert kept < all_kept


def test_the_more_is_asked_for_the_less_is_kept(tmp_path: Path) -> None:
    held = [step(model_after(edited(amount, tmp_path)))[1] for amount in ("0.25", "0.5", "1")]
    assert held == sorted(held, reverse=True)
    assert len(set(held)) == 3


def test_models_of_transformers_use_their_own_switch_and_keep_no_cache_in_a_part(tmp_path: Path) -> None:
    source = SOURCE.replace("import torch\n", "import torch\nfrom transformers import GPT2LMHeadModel\n")
    assert "model.gradient_checkpointing_enable(" in edited("1", tmp_path, source)
    part = edited("0.5", tmp_path, source)
    assert "part.config.use_cache = False" in part
    assert "found[: round(0.5 * len(found))]" in part
