"""A copy in int8 that guesses: the same layers, rounded, beside weights that are the model's own."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gobrrr.layers import int8_draft, made_once


class Conv1D(nn.Module):
    """As transformers': a linear layer whose weight is turned."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Model(nn.Module):
    """Its head is its embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self._is_stateful, self._supports_default_dynamic_cache = False, lambda: True
        self.generation_config = SimpleNamespace(num_assistant_tokens=20)
        self.words, self.block = nn.Embedding(30, 16), nn.ModuleDict({"up": Conv1D(32, 16), "down": nn.Linear(32, 16)})
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block["down"](self.block["up"](self.words(ids)).relu()))


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


def test_it_rounds_the_same_layers(model: Model) -> None:
    ids, before = torch.arange(30)[None], {name: each.clone() for name, each in model.state_dict().items()}
    draft = int8_draft(model)
    plain, rounded = model(ids), draft(ids)
    assert 0.001 < (plain - rounded).norm() / plain.norm() < 0.03
    assert (plain.argmax(-1) == rounded.argmax(-1)).float().mean() > 0.8
    assert not any(isinstance(part, (nn.Linear, Conv1D)) and "quantized" not in type(part).__module__
                   for part in draft.modules())  # fmt: skip
    assert draft.words.weight is model.words.weight
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    told = draft.generation_config
    assert (told.num_assistant_tokens, told.num_assistant_tokens_schedule) == (8, "heuristic")
    assert told.assistant_confidence_threshold == 0.0
    assert model.generation_config.num_assistant_tokens == 20 and model.head.weight is model.words.weight


def test_it_is_made_once_and_anew_for_other_weights(model: Model) -> None:
    first = int8_draft(model)
    assert int8_draft(model) is first and made_once(model, lambda own: own) is model and int8_draft(model) is first
    with torch.no_grad():
        model.block["down"].weight.mul_(-1)
    second, ids = int8_draft(model), torch.arange(5)[None]
    assert second is not first
    assert (model(ids) - second(ids)).norm() < 0.03 * model(ids).norm()


def test_it_infers_whatever_the_model_does_and_begins_with_few_guesses(model: Model) -> None:
    draft = int8_draft(model.train())
    assert model.training and not any(part.training for part in draft.modules())
    draft.generation_config.num_assistant_tokens = 90
    assert int8_draft(model).generation_config.num_assistant_tokens == 32


def test_other_copies_that_the_model_holds_are_not_copied(model: Model) -> None:
    copied = made_once(model, copy.deepcopy)
    assert vars(int8_draft(model))["_gobrrr_made"][0] is copied


def test_an_output_whose_weights_are_none_stays_none(model: Model) -> None:
    with torch.no_grad():
        model.block["down"].weight[3] = 0
    made = int8_draft(model).block["down"](torch.randn(2, 32))
    assert torch.allclose(made[:, 3], model.block["down"].bias[3])


@pytest.mark.parametrize(("name", "value"), [
    ("device", torch.device("cuda")), ("dtype", torch.bfloat16), ("_is_stateful", True),
    ("_supports_default_dynamic_cache", lambda: False),
])  # fmt: skip
def test_models_that_cannot_have_one_have_none(model: Model, name: str, value: object) -> None:
    setattr(model, name, value)
    assert int8_draft(model) is None


def test_autocast_leaves_no_room_for_int8(model: Model) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert int8_draft(model) is None


def test_a_layer_that_is_more_than_linear_stays(model: Model) -> None:
    model.more = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(2, 3, 16)
    assert torch.equal(int8_draft(model).more(x, x, x)[0], model.more(x, x, x)[0])
