"""Sequences packed inside a model: the same for every one of them, and nothing where that cannot be."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gobrrr.guard.watch.witness import Witness
from gobrrr.remedies.mechanism.applying import install
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.padding.packed_forward import rows_of
from gobrrr.remedies.padding.packing import MODELS
from gobrrr.remedies.registry import remedy
from gobrrr.rules.model.finding import Finding, Quantity, Saving
from gobrrr.rules.verdict.report import Report, Step, Verdict
from tests.data import test_packed_training as proof

LENGTHS, WIDTH, WORDS, BOUND = [5, 17, 9, 30, 1, 2, 12, 25], 32, 90, 1e-5


class Base(nn.Module):
    """What stands for transformers' PreTrainedModel."""

    device, dtype = torch.device("cpu"), torch.float32

    @property
    def base_model(self) -> nn.Module:
        return getattr(self, "trunk", self)  # type: ignore[no-any-return]


class Output(dict[str, Tensor]):
    def __getitem__(self, key: Any) -> Tensor:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


class Trunk(Base):
    """Attention through torch's own function, with a mask of its own where it gets none of four dimensions."""

    def __init__(self, causal: bool = True, fault: str = "", drops: float = 0.0) -> None:
        super().__init__()
        self.causal, self.fault = causal, fault
        self.config = types.SimpleNamespace(_attn_implementation="sdpa")
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Embedding(64, 32)
        self.mix, self.drop = nn.Linear(32, 96), nn.Dropout(drops)
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.3)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None, use_cache: bool = True
    ) -> Any:
        length = input_ids.shape[1]
        if position_ids is None or self.fault == "positions of its own":
            position_ids = torch.arange(length)[None]
        if attention_mask.dim() == 2:
            seen = (attention_mask != 0)[:, None, None, :].expand(-1, 1, length, -1)
            attention_mask = (seen.tril() if self.causal else seen) | torch.eye(length, dtype=torch.bool)
        elif self.fault == "a mask ignored":
            attention_mask = torch.ones(length, length, dtype=torch.bool).tril()
        x = self.words(input_ids) + self.places(position_ids)
        heads = self.mix(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        x = x + self.drop(F.scaled_dot_product_attention(*heads, attn_mask=attention_mask).transpose(1, 2).flatten(-2))
        if self.fault == "carries state":
            x = x.cumsum(1)
        if self.fault == "raises" and input_ids.shape[1] != WIDTH:
            raise ValueError("another width")
        more = {"cache": x} if self.fault == "gives more" else {}
        return Output(last_hidden_state=x, **more)


class Model(Base):
    """With a head and a loss of every sequence."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(32, WORDS)

    def forward(self, ids: Tensor, mask: Tensor, **more: Any) -> Tensor:
        return self.head(self.trunk(ids, attention_mask=mask, **more)[0])  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "transformers" not in request.node.name:
        monkeypatch.setitem(sys.modules, MODELS, types.SimpleNamespace(PreTrainedModel=Base))  # type: ignore[arg-type]


def batch(left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids and mask."""
    at = torch.arange(WIDTH).expand(len(LENGTHS), WIDTH)
    lengths = torch.tensor(LENGTHS)[:, None]
    mask = (at >= WIDTH - lengths if left else at < lengths).long()
    ids = torch.randint(5, WORDS, mask.shape, generator=torch.Generator().manual_seed(0))
    return ids * mask, mask


class Applied:
    """The remedy, with what it says."""

    def __enter__(self) -> Applied:
        self.told: list[str] = []
        self.declined: list[str] = []
        self._seams = Seams(lambda _, what: self.told.append(what), declined=lambda _, why: self.declined.append(why))
        install(self._seams, ["packing"])
        return self

    def __exit__(self, *_: object) -> None:
        self._seams.remove()


def losses(model: Any, ids: Tensor, mask: Tensor, **more: Any) -> Tensor:
    """Of every sequence, summed over its tokens but the first."""
    labels = ids.masked_fill(mask == 0, -100)[:, 1:]
    each = F.cross_entropy(model(ids, mask, **more)[:, :-1].transpose(1, 2), labels, reduction="none")
    return each.sum(1)


def gradient(model: nn.Module, loss: Tensor) -> Tensor:
    loss.backward()
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


@pytest.mark.parametrize("causal", [True, False])
def test_each_sequence_has_its_loss_and_all_of_them_their_gradient(causal: bool) -> None:
    torch.manual_seed(0)
    model, given = Model(Trunk(causal)), batch()
    plain = losses(model, *given)
    wanted = gradient(model, plain.sum())
    with Applied() as said:
        found = losses(model, *given)
        hidden = model.trunk(given[0], attention_mask=given[1])["last_hidden_state"]
        packed = gradient(model, found.sum())
    assert said.told == ["Trunk: 8x32 in 4x30, the first batch that it packs"] and not said.declined
    assert not hidden[given[1] == 0].any() and hidden[given[1] == 1].all()
    assert float((found - plain).abs().max() / plain.abs().max()) < BOUND
    assert float((packed - wanted).norm() / wanted.norm()) < BOUND
    assert Trunk.forward.__qualname__ == "Trunk.forward" and not hasattr(Trunk.forward, "__wrapped__")


FAULTS = ["positions of its own", "a mask ignored", "carries state", "raises", "gives more"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_trunk_that_computes_something_else_is_left_alone(fault: str) -> None:
    torch.manual_seed(0)
    model, given = Model(Trunk(fault=fault)), batch()
    plain = model(*given)
    with Applied() as said:
        found = model(*given)
        assert torch.equal(found, plain) and torch.equal(model(*given), plain)
    assert len(said.declined) == 1 and not said.told


def full(model: Model) -> Any:
    ids = batch()[0]
    return model(ids, torch.ones_like(ids))


def in_evaluation(model: Model) -> Any:
    return model.eval()(*batch())


def without_gradients(model: Model) -> Any:
    with torch.no_grad():
        return model(*batch())


def changed(name: str, value: object) -> Callable[[Model], Any]:
    def call(model: Model) -> Any:
        setattr(model.trunk.config, name, value)
        return model(*batch())

    return call


def with_a_pooler(model: Model) -> Any:
    model.trunk.pooler = nn.Identity()
    return model(*batch())


def padded_on_the_left(model: Model) -> Any:
    return model(*batch(left=True))


def with_a_hole(model: Model) -> Any:
    ids, mask = batch()
    mask[1, 3] = 0
    return model(ids, mask)


def without_a_token(model: Model) -> Any:
    ids, mask = batch()
    mask[3] = 0
    return model(ids, mask)


LEFT = {
    "hardly padded": full, "": in_evaluation, " ": without_gradients,
    "takes no mask": changed("_attn_implementation", "flash_attention_2"), "more than its last layer": with_a_pooler,
    "do not see all": changed("sliding_window", WIDTH - 1), "padding comes before": padded_on_the_left,
    "padding comes before a token": with_a_hole, "padding comes": without_a_token,
}  # fmt: skip


@pytest.mark.parametrize("why", LEFT)
def test_what_it_cannot_pack_is_computed_as_ever(why: str) -> None:
    torch.manual_seed(0)
    model = Model(Trunk())
    plain = LEFT[why](model.train())
    with Applied() as said:
        assert torch.equal(LEFT[why](model.train()), plain)
    assert not said.told and (any(why in each for each in said.declined) if why.strip() else not said.declined)


def test_a_window_that_holds_all_of_it_is_none() -> None:
    with Applied() as said:
        changed("sliding_window", WIDTH)(Model(Trunk()))
    assert said.told


def test_other_arguments_than_those_of_tokens_are_not_understood() -> None:
    model = Model(Trunk())
    with Applied() as said:
        model(*batch(), position_ids=torch.arange(WIDTH)[None])
        assert said.declined == ["it is called with position_ids"]
        model(*batch(), position_ids=torch.arange(WIDTH).expand(len(LENGTHS), -1))
        assert said.told


def test_trying_draws_nothing_and_leaves_the_model_in_its_mode() -> None:
    torch.manual_seed(0)
    model = Model(Trunk(drops=0.5))
    model.trunk.mix.eval()
    state = torch.get_rng_state()
    with Applied() as said:
        model(*batch())
        after = torch.get_rng_state()
    assert said.told and model.trunk.drop.training and not model.trunk.mix.training and model.trunk.training
    torch.set_rng_state(state)
    F.dropout(torch.ones(4, 30, 32), 0.5)  # what the packed rows drop from, once
    assert torch.equal(torch.get_rng_state(), after)


def test_rows_hold_every_token_once() -> None:
    _, mask = batch(left=True)
    rows = rows_of(mask)
    assert sorted(rows.come.tolist()) == (mask.flatten() != 0).nonzero().flatten().tolist()
    assert len(set(rows.go.tolist())) == len(rows.go) == sum(LENGTHS)
    assert torch.equal(rows.documents.flatten()[rows.go], rows.come // WIDTH)
    assert int((rows.documents >= 0).sum()) == sum(LENGTHS)
    for row in rows.documents:  # each sequence in one piece
        assert len(torch.unique_consecutive(row[row >= 0])) == len(torch.unique(row[row >= 0]))


@pytest.mark.parametrize("make", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_models_of_transformers(make: str, attention: str) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = getattr(proof, make)(attention).train()

    def forward(ids: Tensor, mask: Tensor) -> Tensor:
        return model(input_ids=ids, attention_mask=mask).logits  # type: ignore[no-any-return]

    plain = losses(forward, *batch())
    wanted = gradient(model, plain.sum())
    with Applied() as said:
        found = losses(forward, *batch())
        packed = gradient(model, found.sum())
    assert said.told, said.declined
    assert float((found - plain).abs().max() / plain.abs().max()) < BOUND
    assert float((packed - wanted).norm() / wanted.norm()) < BOUND


def test_the_guard_looks_at_real_tokens_only_where_it_is_told_to() -> None:
    class Masked(nn.Module):
        padding = 0.0

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return (input_ids + self.padding * (attention_mask == 0)).float()[..., None]

    def outputs(padding: float, real_tokens: bool) -> Any:
        model = Masked()
        model.padding = padding
        with Witness(real_tokens=real_tokens) as witness:
            model(*batch())
        return witness.observation().steps[0].calls[0].outputs

    assert outputs(0.0, True) == outputs(5.0, True) and outputs(0.0, True)[0].shape == (sum(LENGTHS), 1)
    assert outputs(0.0, False) != outputs(5.0, False)


def evidence(**saved: float) -> Finding:
    found = {name: Quantity(value, "ns") for name, value in saved.items()}
    return Finding("BRR409", "padding", "data", "note", Saving(0.0, 2e6, 5e6), "m", evidence=found)


@pytest.mark.parametrize(("found", "expected"), [
    (evidence(saved_by_bucketing=3e6, packing=0.9), 3e6), (evidence(saved_by_bucketing=9e6, packing=0.9), 5e6),
    (evidence(saved_by_bucketing=3e6), 0.0),
])  # fmt: skip
def test_it_promises_what_was_simulated(found: Finding, expected: float) -> None:
    report = Report(verdict=Verdict("data", ""), step=Step(10, 10**7, 10**7), findings=(found,))
    assert remedy("packing").predicts(report).expected_ns == expected
