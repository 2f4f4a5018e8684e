"""Parts that change numbers: against numpy's float64, hand formulas, odd names, shared weights and wrapped models."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gobrrr.layers import (
    half_precision,
    low_rank,
    made_once,
    sensitivity,
    static_int8,
    two_of_four,
)
from gobrrr.layers.noted import note_run, note_sensitivity, simulated_int8, weight_bytes


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()


def quantised(model: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)  # type: ignore[no-any-return]


@pytest.mark.parametrize("energy", [0.3, 0.5, 0.7])
def test_a_low_rank_layer_is_the_nearest_of_the_smallest_rank(energy: float) -> None:
    layer = nn.Linear(40, 30)
    before = layer.weight.detach().double().numpy()
    state = torch.get_rng_state()
    thin = low_rank(nn.Sequential(layer), energy)[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(thin, nn.Sequential)
    first, second = (part.weight.detach().double().numpy() for part in thin)
    values = np.linalg.svd(before, compute_uv=False) ** 2
    rank = len(first)
    assert values[:rank].sum() >= energy * values.sum() > values[: rank - 1].sum()
    assert np.square(before - second @ first).sum() == pytest.approx(values[rank:].sum(), rel=1e-4)
    x = torch.randn(3, 40)
    by_hand = x.double().numpy() @ (second @ first).T + layer.bias.detach().double().numpy()
    assert np.allclose(thin(x).detach().numpy(), by_hand, atol=1e-5)


def test_low_rank_leaves_what_saves_nothing_and_what_is_to_stay() -> None:
    shared = nn.Linear(16, 16)
    model = nn.ModuleDict({"a b": shared, "c": shared, "stays": nn.Linear(16, 16), "conv": nn.Conv1d(2, 2, 1)})
    found = low_rank(copy.deepcopy(model), 0.5, keep={"stays"})
    assert found["a b"] is found["c"] and isinstance(found["c"], nn.Sequential)
    assert type(found["stays"]) is nn.Linear and type(low_rank(model, 1.0)["c"]) is nn.Linear
    with pytest.raises(ValueError, match="share"):
        low_rank(model, 0.0)


def of_rank_2(*size: int) -> nn.Linear:
    layer = nn.Linear(*size)
    layer.weight.data = torch.randn(size[1], 2) @ torch.randn(2, size[0]) / 8
    return layer


def test_a_low_rank_layer_has_what_the_linear_layer_had() -> None:
    layer, x, seen = of_rank_2(32, 48), torch.randn(3, 32), list[str]()
    handle = layer.register_forward_hook(lambda *_: seen.append("after"))
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    plain, weight = layer(x), layer.weight.detach()
    thin = low_rank(layer, 0.9999)
    assert type(thin) is not nn.Linear and (thin.in_features, thin.out_features) == (32, 48) and thin.bias is layer.bias
    assert torch.allclose(thin.weight, weight, atol=1e-5) and torch.allclose(thin(x), plain, atol=1e-5)
    handle.remove()
    thin(x)
    assert seen == ["before", "after"] * 2 + ["before"]
    again = low_rank(nn.Sequential(thin), 0.5)
    assert again[0] is thin and type(thin[0]) is nn.Linear
    normed = nn.Sequential(nn.utils.weight_norm(of_rank_2(32, 48)))
    assert type(low_rank(normed)[0]) is nn.Linear


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(2)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 1).eval()


def test_torchs_encoder_takes_low_rank_layers_and_its_attention_is_one_layer() -> None:
    model, x = encoder(), torch.randn(2, 5, 32)
    model.layers[0].linear1 = of_rank_2(32, 64)
    with torch.no_grad():
        plain = model(x)
        assert torch.allclose(low_rank(copy.deepcopy(model), 0.9999)(x), plain, atol=1e-4)
    found = sensitivity(model, half_precision, (x,))
    assert "layers.0.self_attn" in found and "layers.0.self_attn.out_proj" not in found
    assert all(0 < each < 0.1 for each in found.values())
    assert "layers.0.self_attn" in sensitivity(model, simulated_int8, (x,))  # of which out_proj alone is another


class Head(nn.Module):
    """Takes nested arguments, gives a dict."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.norm, self.last = body, nn.LayerNorm(8), nn.Linear(8, 4)
        self.seen: list[torch.dtype] = []

    def forward(self, x: dict[str, torch.Tensor], *, ids: torch.Tensor) -> dict[str, Any]:
        inner = self.norm(self.body(x["x"]))
        self.seen.append(inner.dtype)
        return {"logits": self.last(inner), "ids": ids}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_what_the_same_model_gives_cast_by_hand(dtype: torch.dtype) -> None:
    model, x, ids = Head(small()).eval(), torch.randn(5, 16), torch.arange(5)
    by_hand = copy.deepcopy(model).to(dtype)({"x": x.to(dtype)}, ids=ids)["logits"].float()
    half = half_precision(copy.deepcopy(model), dtype)
    found = half({"x": x}, ids=ids)
    assert torch.equal(found["logits"], by_hand) and found["ids"].dtype == torch.int64 and half.seen == [dtype]
    assert weight_bytes(half) * 2 == weight_bytes(model)


def test_layers_that_stay_compute_in_float32() -> None:
    model, x = Head(small()).eval(), torch.randn(5, 16)
    half = half_precision(copy.deepcopy(model), keep={"last", "norm"})
    inner = copy.deepcopy(model.body).bfloat16()(x.bfloat16())
    normed = model.norm(inner.float()).bfloat16()
    assert torch.equal(half({"x": x}, ids=x)["logits"], model.last(normed.float()).bfloat16().float())
    assert half.last.weight.dtype == torch.float32 and half.body[0].weight.dtype == torch.bfloat16
    mixed = half_precision(quantised(small()))  # packed weights take float32
    assert mixed(x).dtype == torch.float32


@dataclass(frozen=True)
class Given:
    x: torch.Tensor
    name: str = ""
    more: object = None


class OfGiven(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.note = small(), Given(torch.ones(1, dtype=torch.int64))

    def forward(self, given: Given) -> Given:
        assert given.more is self.note
        return Given(self.body(given.x), given.name, [Given(self.body(given.x))])


def test_dataclasses_are_taken_and_given_in_float32() -> None:
    model, x = OfGiven(), torch.randn(5, 16)
    given = Given(x, "a", model.note)
    by_hand = copy.deepcopy(model.body).bfloat16()(x.bfloat16()).float()
    assert sensitivity(model, simulated_int8, (given,)).keys() == {"body.0", "body.2"}
    found = half_precision(model)(given)
    assert torch.equal(found.x, by_hand) and torch.equal(found.more[0].x, by_hand) and found.name == "a"
    assert given.x is x


class Timed(nn.Module):
    """Makes float32 of its own, as models of diffusion do of their times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.time = nn.Linear(16, 8), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.first(x) + self.time(torch.sin(t[:, None] * torch.arange(4)))
        return made


def test_what_a_forward_makes_in_float32_is_cast_for_the_layer_that_gets_it() -> None:
    model, x, t = Timed(), torch.randn(5, 16), torch.arange(5)
    by_hand = copy.deepcopy(model).bfloat16()
    waves = torch.sin(t[:, None] * torch.arange(4)).bfloat16()
    expected = (by_hand.first(x.bfloat16()) + by_hand.time(waves)).float()
    assert torch.equal(half_precision(model)(x, t), expected)


def test_layers_within_layers_that_stay_and_a_model_that_is_saved() -> None:
    model, x = nn.Sequential(small(), nn.Linear(8, 4)), torch.randn(5, 16)
    half = half_precision(copy.deepcopy(model), keep={"0", "0.0"})
    assert torch.equal(half(x), copy.deepcopy(model[1]).bfloat16()(model[0](x.bfloat16().float()).bfloat16()).float())
    file = io.BytesIO()
    torch.save(simulated_int8(half), file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), half(x))


def test_a_weight_that_is_shared_stays_where_it_is_to_stay() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].weight = model[0].weight
    half = half_precision(model, keep={"1"})
    assert half[0].weight.dtype == torch.bfloat16 and half[1].weight.dtype == torch.float32
    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    tied[1].weight = tied[0].weight
    assert half_precision(tied)[1].weight is tied[0].weight


def test_sensitivity_is_that_of_each_layer_alone_and_the_model_stays() -> None:
    model, x = Head(small()).eval(), torch.randn(5, 16)
    plain = model({"x": x}, ids=x)["logits"]

    def rounded(other: nn.Module) -> nn.Module:
        for name in ("body.0", "last"):
            part = other.get_submodule(name)
            assert isinstance(part, nn.Linear)
            part.weight.data = (part.weight.data * 4).round() / 4
        return other

    found = sensitivity(model, rounded, ({"x": x},), {"ids": torch.arange(5)})
    assert set(found) == {"body.0", "last"}
    for name, said in found.items():
        other = copy.deepcopy(model)
        part = other.get_submodule(name)
        assert isinstance(part, nn.Linear)
        part.weight.data = (part.weight.data * 4).round() / 4
        apart = (other({"x": x}, ids=x)["logits"].double() - plain.double()).norm() / plain.double().norm()
        assert said == pytest.approx(float(apart), rel=1e-5)
    assert torch.equal(model({"x": x}, ids=x)["logits"], plain)


def test_sensitivity_of_other_types_and_dtypes_and_of_a_layer_at_two_places() -> None:
    shared = nn.Linear(16, 16)
    model, x = nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(16, 4)).eval(), torch.randn(3, 16)
    for change in (quantised, lambda other: half_precision(other), lambda other: low_rank(other, 0.5), simulated_int8):
        found = sensitivity(model, change, (x,))
        assert list(found) == ["0", "3"] and all(0 < each < 1 for each in found.values()), change
    odd = nn.ModuleDict({'it\'s "q"': nn.Linear(16, 4)})
    odd.forward = lambda x: odd['it\'s "q"'](x)  # type: ignore[method-assign]
    assert list(sensitivity(odd, simulated_int8, (x,))) == ['it\'s "q"']


def test_outputs_without_floats_tell_nothing_of_layers() -> None:
    model = nn.Sequential(small(), nn.Flatten())
    model[1].forward = lambda x: x.argmax(1)  # type: ignore[method-assign]
    assert sensitivity(model, half_precision, (torch.randn(3, 16),)) == {}


def test_a_copy_is_made_anew_where_weights_were_written_since() -> None:
    model = small()
    made = made_once(model, copy.deepcopy)
    assert made is not model and made_once(model, copy.deepcopy) is made is made_once(made, copy.deepcopy)
    assert [*made.state_dict()] == [*model.state_dict()] and len([*model.modules()]) == 4
    model.load_state_dict(model.state_dict())
    assert made_once(model, copy.deepcopy) is not made
    half = made_once(model := small(), half_precision)
    model.load_state_dict(model.state_dict())
    assert half is model and made_once(model, quantised) is model
    for call in (lambda: made_once(3, quantised), lambda: note_run(3, quantised, "")):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"not a torch\.nn\.Module: int"):
            call()


def test_static_int8_is_near_float_from_its_first_call_on() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).eval()
    batches = [torch.randn(16, 3, 8, 8) for _ in range(4)]
    plain = [model(x) for x in batches]
    state = torch.get_rng_state()
    static = static_int8(copy.deepcopy(model), keep={"4"})
    found = [static(x) for x in (*batches, batches[0][:3])]
    assert torch.equal(torch.get_rng_state(), state) and not static.training
    for now, then in zip(found, plain, strict=False):
        assert 1e-4 < (now - then).norm() / then.norm() < 0.1
    assert found[4].shape == (3, 4)
    inside = dict(static.named_modules())
    assert type(inside["model.4"]) is nn.Linear and type(inside["model.0"]) is not nn.Conv2d
    assert weight_bytes(static) < weight_bytes(model)


def test_simulated_int8_is_the_formula() -> None:
    layer, x = nn.Linear(6, 3), torch.randn(4, 6)
    weight, given = layer.weight.detach().double().numpy(), x.double().numpy()
    scale = np.abs(weight).max(1, keepdims=True) / 127
    low, high = min(0, given.min()), max(0, given.max())
    step = (high - low) / 255
    zero = round(-low / step)
    rounded = (np.clip(np.rint(given / step) + zero, 0, 255) - zero) * step
    by_hand = rounded @ (np.rint(weight / scale) * scale).T + layer.bias.detach().double().numpy()
    model = simulated_int8(nn.Sequential(layer))
    assert np.allclose(model(x).detach().numpy(), by_hand, atol=1e-5) and model(x[:0]).shape == (0, 3)


def test_two_of_four_keeps_the_largest() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10), nn.Linear(64, 64))
    before = model[0].weight.detach().clone()
    two_of_four(model, keep={"2"}, pack=False)
    four, old = model[0].weight.detach().view(-1, 4), before.view(-1, 4)
    assert ((four != 0).sum(1) == 2).all() and torch.equal(four[four != 0], old[four != 0])
    assert torch.equal(four.abs().sum(1), old.abs().topk(2, dim=1).values.sum(1))
    assert (model[1].weight != 0).all() and (model[2].weight != 0).all()


def test_bytes_are_those_of_what_is_held_shared_once() -> None:
    model = small()
    assert weight_bytes(model) == 4 * sum(each.numel() for each in model.parameters())
    tied = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    tied[1].weight = tied[0].weight
    assert weight_bytes(tied) == 4 * 64
    packed = weight_bytes(quantised(small()))
    assert 16 * 32 + 32 * 8 <= packed <= 16 * 32 + 32 * 8 + 4 * 40 + 64


@pytest.fixture
def the_end(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Do what was to be done when the program ends, and nothing that torch has for then."""
    waiting: list[Callable[[], object]] = []
    monkeypatch.setattr("gobrrr.layers.noted.atexit", SimpleNamespace(register=waiting.append))
    return lambda: [each() for each in waiting]


def test_what_a_run_notes(tmp_path: Path, the_end: Callable[[], object]) -> None:
    model = note_run(small(), half_precision, str(tmp_path / "run.json"))
    for _ in range(5):
        model(torch.randn(2, 16))
    the_end()
    told = json.loads((tmp_path / "run.json").read_text())
    assert told["calls"] == 5 and told["layers"]["linear"] == 2 and told["bytes"] == weight_bytes(model)
    assert told["ns"] > 0 and told["device"] == "cpu" and told["times"] is None


def test_the_plain_model_computes_some_calls_too_where_nobody_can_write_to_what_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, the_end: Callable[[], object]
) -> None:
    from gobrrr.layers import noted

    now, calls = 0, list[str]()

    class Slow(nn.Module):
        def __init__(self, name: str, ns: int) -> None:
            super().__init__()
            self.layer, self.name, self.ns = nn.Linear(4, 4), name, ns

        def forward(self, x: torch.Tensor, cache: object = None) -> torch.Tensor:
            nonlocal now
            now += self.ns
            calls.append(self.name)
            return self.layer(x)

    monkeypatch.setattr(noted.time, "perf_counter_ns", lambda: now)
    for number, cache in enumerate((None, object())):
        calls.clear()
        model = note_run(Slow("plain", 25), lambda _: Slow("own", 10), str(tmp_path / f"{number}.json"))
        for _ in range(12):
            model(torch.randn(8, 4), cache=cache)
        the_end()
        told = json.loads((tmp_path / f"{number}.json").read_text())
        assert calls.count("own") == 12 and calls.count("plain") == (0 if number else 7)
        assert told["ns"] == 10 and told["times"] == (None if number else 2.5)


def test_the_plain_model_is_given_what_the_model_was_given_before_its_own_hooks(
    tmp_path: Path, the_end: Callable[[], object]
) -> None:
    model = small()
    half = note_run(model, half_precision, str(tmp_path / "a.json"))
    for _ in range(9):
        assert half(torch.randn(2, 16)).dtype == torch.float32
    the_end()
    assert json.loads((tmp_path / "a.json").read_text())["times"] > 0


def test_a_model_that_cannot_be_copied_is_run_alone(tmp_path: Path, the_end: Callable[[], object]) -> None:
    for name in ("copied", "alone"):
        model = small()
        if name == "alone":
            model.lock = (each for each in ())  # type: ignore[assignment]
        model = note_run(model, half_precision, str(tmp_path / f"{name}.json"))  # type: ignore[assignment]
        for _ in range(9):
            model(torch.randn(2, 16))
        the_end()
        told = json.loads((tmp_path / f"{name}.json").read_text())
        assert told["calls"] == 9 and (told["times"] is None) == (name == "alone")


def test_noting_sensitivity_ends_the_program(tmp_path: Path) -> None:
    model = note_sensitivity(small(), simulated_int8, str(tmp_path / "layers.json"))
    with pytest.raises(SystemExit):
        model(torch.randn(2, 16))
    assert set(json.loads((tmp_path / "layers.json").read_text())) == {"0", "2"}
