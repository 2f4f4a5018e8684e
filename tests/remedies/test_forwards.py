"""A copy of a model whose forward a remedy replaced computes with its own weights, and is saved as any other."""

from __future__ import annotations

import copy
import inspect
import io
from types import MethodType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from gobrrr.remedies import registry
from gobrrr.remedies.mechanism.forwards import _plain_state, replaced
from tests.remedies.test_effects import applied
from tests.support.patching import patched


class Images(nn.Module):
    """All that these remedies look for: a convolution, a head of many classes, and doubles where they are asked for."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, dtype=dtype)
        self.head = nn.Linear(4, 5000, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.conv(x)).mean((2, 3))
        out: torch.Tensor = self.head(hidden)
        return out

    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        """What a program may put in forward's place."""
        return 2 * Images.forward(self, x)


def test_the_best_weights_are_kept_by_a_copy_and_by_a_file() -> None:
    torch.manual_seed(0)
    model, x = Images(), torch.randn(2, 3, 8, 8)
    with applied("bf16_autocast"):
        model(x)
        best, file = copy.deepcopy(model), io.BytesIO()
        torch.save(model, file)
        before = model(x)
        for parameter in model.parameters():
            parameter.data.zero_()
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        for kept in (best, loaded):
            torch.testing.assert_close(kept(x), before)
        assert not model(x).float().any()
    assert "forward" not in vars(model)


SAFE = [Images, nn.Conv2d, nn.Linear]


def test_a_whole_model_in_a_file_is_read_as_the_programs_own_is() -> None:
    """word_language_model of pytorch/examples loads its best model with weights_only, as torch does by default: after
    an epoch of 53 s it ended with "Unsupported global: getattr"."""
    model, x = Images(), torch.randn(2, 3, 8, 8)
    plain, state, save = io.BytesIO(), nn.Module.__getstate__, torch.save
    torch.save({"best": [model]}, plain)
    with applied("bf16_autocast"):
        model(x)
        forward = vars(model).get("forward")
        for saved in (model, copy.deepcopy(model)):
            file = io.BytesIO()
            torch.save({"best": [saved]}, file)
            file.seek(0)
            with torch.serialization.safe_globals(SAFE):
                loaded = torch.load(file, weights_only=True)["best"][0]
            assert "forward" not in vars(loaded) and vars(loaded).keys() == vars(saved).keys() - {"forward"}
            assert len(file.getvalue()) == len(plain.getvalue())
        assert vars(model).get("forward") is forward, "it goes on as it was"
    assert nn.Module.__getstate__ is state and torch.save is save


def test_what_the_program_set_in_its_place_is_what_is_saved() -> None:
    model, x = Images(), torch.randn(2, 3, 8, 8)
    model.forward = MethodType(Images.doubled, model)  # type: ignore[method-assign]
    with applied("bf16_autocast"):
        model(x)
        assert vars(model)["forward"].__func__ is not Images.doubled
        assert _plain_state(model, vars(model))["forward"] == MethodType(Images.doubled, model)
    assert vars(model)["forward"].__func__ is Images.doubled


def test_compilers_and_readers_of_signatures_see_through_it() -> None:
    model, x = Images(), torch.randn(2, 3, 8, 8)
    with applied("bf16_autocast"):
        expected = model(x)
        assert list(inspect.signature(model.forward).parameters) == ["x"], "as transformers reads it"
        whole = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(whole(x), expected)
        model.compile(backend="eager", fullgraph=True)
        torch.testing.assert_close(model(x), expected)


def test_what_the_program_set_in_its_place_is_called_beneath() -> None:
    model = Images()
    seen: list[Any] = []

    def doubled(self: Images, x: torch.Tensor) -> torch.Tensor:
        seen.append(self)
        return 2 * Images.forward(self, x)

    def one_more(_: Any, forward: Any, *args: Any) -> Any:
        return forward(*args) + 1

    model.forward = MethodType(doubled, model)  # type: ignore[method-assign]
    model.forward = replaced(model, one_more)  # type: ignore[method-assign]
    model.forward = replaced(model, one_more)  # type: ignore[method-assign]  # two remedies
    other, x = copy.deepcopy(model), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(other(x), 2 * Images.forward(model, x) + 2)
    assert seen == [other] and seen[0] is not model, "a method of the program's is the copy's, too"
    model.forward = lambda x: x  # type: ignore[method-assign,assignment]
    model.forward = replaced(model, one_more)  # type: ignore[method-assign]
    assert model(torch.zeros(1)).item() == 1


AVERAGED = """import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = torch.optim.swa_utils.AveragedModel(model)
"""


@pytest.mark.parametrize(
    "line", ["model = torch.compile(model, backend='eager')", "model.forward = lambda x: 7 * plain(x)"]
)
def test_the_patch_keeps_what_is_there(line: str) -> None:
    edit = registry.remedy("bf16_autocast").change_of_source({})
    assert edit is not None
    source = AVERAGED.replace("\noptimizer", f"\nplain = model.forward\n{line}\noptimizer").replace("average", "# ")
    names: dict[str, Any] = {}
    exec(patched(source, [edit]), names)
    x = torch.randn(4, 8)
    expected = (7 if "lambda" in line else 1) * torch.nn.functional.linear(x, *names["model"].parameters())
    torch.testing.assert_close(names["model"](x), expected, rtol=2e-2, atol=5e-2)
    assert "in_bfloat16(model)" in patched(source, [edit])


def test_the_patch_leaves_an_average_of_the_model_its_own_weights() -> None:
    edit = registry.remedy("bf16_autocast").change_of_source({})
    assert edit is not None
    names: dict[str, Any] = {}
    exec(patched(AVERAGED, [edit]), names)  # as the user would run it
    model, average, x = names["model"], names["average"], torch.randn(4, 8)
    before = average(x)
    model.weight.data.zero_()
    assert torch.equal(average(x), before) and not torch.equal(model(x), before)
    assert model(x).dtype == torch.float32 and "in_bfloat16" in names
