"""An edit of the source is judged by what it computes, however it is written."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from gobrrr import guard
from gobrrr.guard.model.verdict import Guarded
from gobrrr.guard.reference.variants import shifted
from gobrrr.guard.verdicts import edits

STEPS, BATCH = 32, 8


class Net(nn.Module):
    def __init__(self, by_row: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.last, self.by_row = nn.Linear(6, 16), nn.Linear(16, 3), by_row
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.stack([self.first(row) for row in x]) if self.by_row else self.first(x)
        return self.last(self.dropout(torch.tanh(hidden)))


class Renamed(nn.Module):
    """The same under other names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(torch.tanh(self.encoder(x)))


class Holding(Net):
    """The same with a constant in a buffer, and one that only it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ones", torch.ones(6))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x * self.ones)


class Normed(Net):
    """With statistics of a norm that stay what they are, or move."""

    def __init__(self, momentum: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, momentum=momentum)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x))


def training(
    make: Callable[[], nn.Module] = Net, *, one_by_one: bool = False, shuffle: bool = True, batch: int = BATCH,
    updates_until: int = STEPS, clip: float = 1.0, evaluate: int = 2, scale: bool = True, learning_rate: float = 0.05,
    groups: bool = False, lowered: bool = False, seed: int = 0, optimizer: Any = torch.optim.SGD,
) -> Callable[[], None]:  # fmt: skip
    """A training with an evaluation after every eighth step; each argument writes it otherwise, or cheats."""

    def train() -> None:
        torch.manual_seed(seed)
        data = TensorDataset(torch.randn(STEPS * BATCH, 6), torch.randint(0, 3, (STEPS * BATCH,)))
        held_out = torch.randn(64, 6)
        model = make()
        parameters: Any = [{"params": [each]} for each in model.parameters()] if groups else model.parameters()
        steps = optimizer(parameters, lr=learning_rate)
        for number, (x, y) in enumerate(DataLoader(data, batch_size=batch, shuffle=shuffle)):
            inputs = x if scale else 0.5 * x
            with torch.autocast("cpu", enabled=lowered):
                if one_by_one:
                    outputs = torch.cat([model(row[None]) for row in inputs])
                else:
                    outputs = model(inputs)
                loss = F.cross_entropy(outputs, y)
            steps.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            if number < updates_until:
                steps.step()
            if number % 8 == 7:
                model.eval()
                with torch.no_grad():
                    for part in held_out.split(64 // evaluate) if evaluate else ():
                        model(part)
                model.train()

    return train


def judged(candidate: Callable[[], None], accepted: Collection[str] = (), **baseline: Any) -> Guarded:
    return guard.compare(training(**baseline), candidate, accepted=accepted)


@pytest.mark.parametrize(
    "candidate",
    [
        training(),
        training(lambda: Net(by_row=True)),
        training(one_by_one=True),
        training(Renamed),
        training(Holding),
        training(groups=True),
        training(evaluate=4),
    ],
    ids=[
        "nothing",
        "a loop over rows",
        "a call for each sample",
        "other names",
        "a constant in a buffer",
        "parameter groups",
        "evaluation in parts",
    ],
)
def test_what_is_only_written_otherwise_matches(candidate: Callable[[], None]) -> None:
    found = judged(candidate)
    assert found.green, found.reasons


@pytest.mark.parametrize(
    ("candidate", "said", "baseline"),
    [
        (training(shuffle=False), "data: ", {}),
        (training(batch=4), "data: models are given 24 elements in step 1, in the baseline 48", {}),
        (training(updates_until=20), "steps: ", {}),
        (training(clip=0.0), "updates", {"clip": 0.1}),
        (training(evaluate=0), "evaluation: 0 of 256 samples", {}),
        (training(scale=False), "data: ", {}),
        (training(learning_rate=0.06), "hyperparameters: setting lr is 0.06", {}),
        (training(lowered=True), "errs", {}),
        (training(seed=1), "epochs: sample", {}),
        (training(lambda: Net(dropout=0.5)), "gradients", {}),
        (training(lambda: Normed(0.5)), "updated, which the baseline leaves alone", {"make": Normed}),
        (training(lambda: Normed(0.0)), "not updated", {"make": lambda: Normed(0.5)}),
    ],
    ids="shuffle batch updates clipping evaluation inputs rate precision seed dropout moving still".split(),
)  # fmt: skip
def test_what_computes_otherwise_is_refused_and_named(
    candidate: Callable[[], None], said: str, baseline: dict[str, Any]
) -> None:
    found = judged(candidate, **baseline)
    assert found.verdict in ("changed", "wrong"), found
    assert any(said in reason for reason in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("candidate", "accepted", "reason"),
    [
        (training(lowered=True), {"precision"}, ""),
        (training(evaluate=0), {"evaluation"}, "accepted: 0 of 256 samples"),
    ],
)  # fmt: skip
def test_what_the_user_accepts_is_green_and_said(
    candidate: Callable[[], None], accepted: set[str], reason: str
) -> None:
    found = judged(candidate, accepted)
    assert found.green, found
    assert any(reason in each for each in found.reasons) or not reason


def inference(batch: int, scale: float = 1.0, reverse: bool = False) -> Callable[[], None]:
    def infer() -> None:
        torch.manual_seed(0)
        model, samples = Net(), torch.randn(64, 6)
        with torch.no_grad():
            for part in (samples.flip(0) if reverse else samples).split(batch):
                model(scale * part)

    return infer


def of_two_models(batch: int, without: str = "") -> Callable[[], None]:
    """Each sample goes through both, one behind the other; by batches through one and then the other."""

    def infer() -> None:
        torch.manual_seed(0)
        models, samples = (Net(), Renamed()), torch.randn(64, 6)
        with torch.no_grad():
            for number, part in enumerate(samples.split(batch)):
                for model in models[: 1 if without and (number or "once" not in without) else 2]:
                    model(part)

    return infer


def test_samples_of_two_models_may_be_batched_otherwise_and_none_is_left_out() -> None:
    assert guard.compare(of_two_models(1), of_two_models(8), accepted=()).verdict in guard.GREEN
    for without in ("second", "second, but for once"):
        assert guard.compare(of_two_models(1), of_two_models(8, without), accepted=()).verdict not in guard.GREEN


def test_samples_of_an_inference_may_be_batched_otherwise() -> None:
    assert guard.compare(inference(1), inference(16), accepted=()).verdict in guard.GREEN


class Masked(nn.Module):
    """Sums the vectors of all tokens but padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return (self.embedding(ids) * (ids != 0).unsqueeze(-1)).sum(1)


def answering(width: int) -> Callable[[], None]:
    """Requests of up to eight tokens, padded to twelve, of which so many are given."""

    def infer() -> None:
        torch.manual_seed(0)
        model, ids = Masked().eval(), torch.randint(1, 10, (64, 12))
        ids[:, 8:] = 0
        with torch.no_grad():
            for part in ids.split(2):
                model(part[:, :width])

    return infer


def test_padding_of_an_inference_may_be_cut_off_and_tokens_may_not() -> None:
    assert guard.compare(answering(12), answering(8), accepted=()).verdict in guard.GREEN
    assert guard.compare(answering(12), answering(7), accepted=()).verdict in ("changed", "wrong")


@pytest.mark.parametrize("candidate", [inference(16, scale=0.5), inference(16, reverse=True)])
def test_other_samples_of_an_inference_are_seen_in_any_batches(candidate: Callable[[], None]) -> None:
    assert guard.compare(inference(1), candidate, accepted=()).verdict in ("changed", "wrong")


class Apart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.last = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(torch.cat([self.q(x), self.k(x)], 1)))


class Joined(nn.Module):
    """The same with one layer in place of two, that begins with their weights."""

    def __init__(self) -> None:
        super().__init__()
        plain = Apart()
        self.qk, self.last = nn.utils.skip_init(nn.Linear, 6, 16), plain.last
        self.qk.weight.data = torch.cat([plain.q.weight.data, plain.k.weight.data])
        self.qk.bias.data = torch.cat([plain.q.bias.data, plain.k.bias.data])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.qk(x)))


@pytest.mark.parametrize("renames", [{}, {"qk.weight": ("q.weight", "k.weight"), "qk.bias": ("q.bias", "k.bias")}])
def test_parameters_that_are_joined_are_held_against_their_parts(renames: dict[str, tuple[str, ...]]) -> None:
    optimizer = torch.optim.AdamW
    plain = guard.observe(training(Apart, optimizer=optimizer, learning_rate=0.001))
    edited = training(Joined, optimizer=optimizer, learning_rate=0.001)
    found = edits.parts(plain, guard.observe(edited), renames)
    assert dict(found) == {"qk.weight": (("q.weight", 8), ("k.weight", 8)), "qk.bias": (("q.bias", 8), ("k.bias", 8))}
    with shifted(0), guard.Witness(parts=dict(found)) as witness:
        edited()
    # One product of 16 rows rounds as two of 8 do on some chips alone.
    others = [guard.observe(training(Apart, optimizer=optimizer, learning_rate=0.001), seed=seed) for seed in (1, 2)]
    judged = guard.judge(plain, witness.observation(), again=plain, seeds=others, accepted=())
    assert judged.green, judged
    unmatched = guard.judge(plain, guard.observe(edited), again=plain, accepted=())
    assert unmatched.verdict == "unverified" and "--rename" in " ".join(unmatched.reasons)


def asked(model: Callable[[], nn.Module], scale: float = 1.0) -> Callable[[], None]:
    def infer() -> None:
        torch.manual_seed(0)
        net, samples = model(), torch.randn(64, 6)
        with torch.no_grad():
            for part in samples.split(8):
                net(part)
                net.last.weight.mul_(scale)

    return infer


class JoinedLater(Apart):
    """The same with a layer more that holds both, made with the first batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "qk"):
            self.qk = nn.utils.skip_init(nn.Linear, 6, 16)
            self.qk.weight.copy_(torch.cat([self.q.weight, self.k.weight]))
            self.qk.bias.copy_(torch.cat([self.q.bias, self.k.bias]))
        return self.last(torch.tanh(self.qk(x)))


def test_of_an_inference_the_outputs_count_whatever_holds_its_weights() -> None:
    assert guard.compare(asked(Apart), asked(JoinedLater), accepted=()).verdict in guard.GREEN
    assert guard.compare(asked(Apart), asked(JoinedLater, scale=1.01), accepted=()).verdict not in guard.GREEN


def test_what_is_accepted_hides_nothing_else() -> None:
    wrong = training(evaluate=0, clip=0.0)
    found = judged(wrong, {"evaluation"}, clip=0.1)
    assert found.verdict in ("changed", "wrong"), found


def test_another_order_is_no_leave_to_take_fewer_samples() -> None:
    assert judged(training(batch=4), {"random"}).verdict in ("changed", "wrong")
