"""What is cut from padded batches, what is left alone, and that the guard tells a model that heeds its mask from one
that does not."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from gobrrr.errors import GobrrrError  # noqa: E402
from gobrrr.guard.watch.inputs import cut_of, leaves_of, tokens_of  # noqa: E402
from gobrrr.remedies.mechanism.applying import install  # noqa: E402
from gobrrr.remedies.mechanism.seams import Seams  # noqa: E402
from gobrrr.remedies.padding.trim_padding import HELD, MULTIPLE, padded, trimmed  # noqa: E402
from gobrrr.remedies.registry import remedy  # noqa: E402
from gobrrr.rules.model.finding import Finding, Saving  # noqa: E402
from gobrrr.rules.verdict.report import Report, Step, Verdict  # noqa: E402
from gobrrr.trial.race.referee import LiveReferee, Program  # noqa: E402

ROWS, LENGTH = 3, 64


def batch(*lengths: int, length: int = LENGTH, **more: Any) -> dict[str, Any]:
    """Rows of so many tokens, padded at the end."""
    mask = (torch.arange(length) < torch.tensor(lengths)[:, None]).long()
    ids = torch.arange(1, length + 1).repeat(len(lengths), 1) * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.arange(len(lengths)), **more}


def cut(given: Any) -> Any:
    found = padded(given)
    return given if found is None else trimmed(given, found)


@given(st.lists(st.integers(1, LENGTH), min_size=1, max_size=6))
def test_no_token_is_lost_and_little_padding_is_left(lengths: list[int]) -> None:
    given = batch(*lengths)
    found = cut(given)
    width = found["input_ids"].shape[1]
    assert found["attention_mask"].shape[1] == width == min(LENGTH, -(-max(lengths) // MULTIPLE) * MULTIPLE)
    assert all(torch.equal(found[name], given[name][:, :width]) for name in ("input_ids", "attention_mask"))
    assert found["input_ids"].sum() == given["input_ids"].sum() and torch.equal(found["labels"], given["labels"])
    assert given["input_ids"].shape[1] == LENGTH, "the program's own batch is left as it is"


PER_TOKEN = torch.full((ROWS, LENGTH), -100)
LABELLED = PER_TOKEN.clone()
LABELLED[1, 40] = 7
IDS, MASK = (batch(10, 20, 3)[name] for name in ("input_ids", "attention_mask"))


class Made(tuple):  # type: ignore[type-arg]
    """A tuple that is made otherwise."""

    def __new__(cls, ids: Any, mask: Any) -> Made:
        return super().__new__(cls, (ids, mask))


class Batch(list):  # type: ignore[type-arg]
    """A list that may know more."""


class Attributes(dict):  # type: ignore[type-arg]
    """Its items are its attributes, which a copy of it splits."""

    def __init__(self, *args: Any, **items: Any) -> None:
        super().__init__(*args, **items)
        self.__dict__ = self


@pytest.mark.parametrize(
    ("why", "left_alone"),
    [
        ("nothing to cut", batch(10, 60, 3)),
        ("a label beyond the tokens", batch(10, 20, 3, labels=LABELLED)),
        ("something else per token", batch(10, 20, 3, entities=PER_TOKEN)),
        ("vectors per token", batch(10, 20, 3, images=torch.zeros(ROWS, LENGTH, 2))),
        ("padding comes first", {name: each.flip(-1) for name, each in batch(10, 20, 3).items()}),
        ("a mask that is added", batch(10, 20, 3, attention_mask=torch.zeros(ROWS, LENGTH))),
        ("a mask of kinds", batch(10, 20, 3, attention_mask=2 * batch(10, 20, 3)["attention_mask"])),
        ("a mask per pair", batch(10, 20, 3, attention_mask=torch.ones(ROWS, 1, LENGTH, LENGTH).long())),
        ("no tokens", batch(0, 0, 0)),
        ("ids where the mask has none", batch(10, 20, 3, input_ids=torch.arange(LENGTH).repeat(ROWS, 1))),
        ("no ids", {"attention_mask": batch(10, 20, 3)["attention_mask"]}),
        ("no mask", {"input_ids": torch.zeros(ROWS, LENGTH).long()}),
        ("a tuple", (torch.zeros(ROWS, LENGTH).long(), torch.ones(ROWS))),
        ("a mask that hides a word", (IDS, MASK - (IDS == 5).long())),
        ("its inverse", (IDS, 1 - MASK)),
        ("tags, padded by one that may count", (IDS, MASK, 2 * MASK)),
        ("a label beyond the tokens of a tuple", (IDS, MASK, LABELLED)),
        ("vectors per token of a tuple", (IDS, MASK, torch.zeros(ROWS, LENGTH, 2))),
        ("scores per token of a tuple", (IDS, MASK, torch.zeros(ROWS, LENGTH))),
        ("two masks", (MASK, MASK.bool())),
        ("labels outside", (batch(10, 20, 3), LABELLED)),
        ("other ids outside", (batch(10, 20, 3), batch(9, 40, 3))),
        ("too deep", (((IDS, MASK),),)),
        ("one tensor", IDS),
        ("a column per token that is no tensor", batch(10, 20, 3, words=np.zeros((ROWS, LENGTH)))),
        ("an object that may hold one", (IDS, MASK, SimpleNamespace(tags=MASK))),
        ("a table too deep", (IDS, MASK, {"y": {"tags": MASK}})),
        ("a tuple that cannot be made again", Made(IDS, MASK)),
        ("a list of the program's own", Batch([IDS, MASK])),
        ("a mapping of its own", Attributes(batch(10, 20, 3))),
        ("a mask over channels as well", (IDS, MASK, torch.zeros(ROWS, 2, LENGTH))),
        ("a mapping that cannot be written", MappingProxyType(batch(10, 20, 3))),
        ("labels of 0, which is a class", batch(10, 20, 3, labels=torch.zeros(ROWS, LENGTH).long())),
        ("tags of -1, 0 and 1", (IDS, MASK, MASK - 2 * (IDS == 1).long())),
        ("ids of another width", batch(10, 20, 3, input_ids=IDS[:, :32])),
        ("ids without a tensor of one shape", (torch.nested.nested_tensor([IDS[0], IDS[1]]), IDS, MASK)),
        ("a sparse one", (IDS.to_sparse(), MASK)),
        ("no rows", (IDS[:0], MASK[:0])),
    ],
)  # fmt: skip
def test_what_nobody_can_be_sure_of_is_left_alone(why: str, left_alone: Any) -> None:
    assert padded(left_alone) is None


def test_labels_per_token_are_cut_where_none_is_lost() -> None:
    found = cut(batch(10, 20, 3, labels=PER_TOKEN, decoder_ids=torch.ones(ROWS, 9)))
    assert found["labels"].shape == found["input_ids"].shape == (ROWS, 24) and found["decoder_ids"].shape == (ROWS, 9)


def test_batches_that_are_like_a_mapping_keep_their_kind() -> None:
    class Encoding(UserDict):  # type: ignore[type-arg]
        """What tokenizers give."""

    found = cut(Encoding(batch(10, 20, 3)))
    assert type(found) is Encoding and found["input_ids"].shape == (ROWS, 24)


class Pair(NamedTuple):
    """A batch of a program's own kind."""

    mask: Any
    tokens: Any


@pytest.mark.parametrize(
    "whole",
    [
        (IDS, MASK), [MASK.bool(), IDS.int(), PER_TOKEN], Pair(MASK, IDS),
        {"ids": IDS, "mask": MASK, "targets": PER_TOKEN},
        (IDS, MASK, torch.zeros_like(IDS), torch.ones(ROWS)), (batch(10, 20, 3), torch.ones(ROWS)),
        (batch(10, 20, 3), PER_TOKEN), ((IDS, MASK), torch.ones(ROWS, LENGTH - 1)),
        [{"ids": IDS, "mask": MASK}, 3, "a"], {"labels": PER_TOKEN.where(MASK == 0, 7), "ids": IDS, "mask": MASK},
        {"words": ["a", "b", "c"], "ids": IDS, "mask": MASK, "n": [1, 2, 3]},
        {"attention_mask": MASK, "input_ids": IDS, "spans": [{"at": (0, 3)}, {"at": None}, {}]},
    ],
)  # fmt: skip
def test_ids_and_mask_without_these_names_are_known_by_what_they_hold(whole: Any) -> None:
    found = cut(whole)
    assert type(found) is type(whole)
    for before, after in zip(leaves_of(whole), leaves_of(found), strict=True):
        if getattr(before, "shape", ()) == (ROWS, LENGTH):
            assert torch.equal(after, before[:, :24])
        else:
            assert after is before


def test_of_two_that_are_called_so_the_first_is_cut_alone() -> None:
    """Questions of 32 tokens at most, answers of 64."""
    found = cut((batch(10, 20, 3, length=32), batch(9, 60, 3)))
    assert width(found[0]) == 24 and width(found[1]) == LENGTH


def rows(lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    whole = batch(*lengths)
    return [{name: value[i] for name, value in whole.items()} for i in range(len(lengths))]


NARROW = 16
"""What rows of nine tokens are cut to."""


class Loop:
    """A program with one model, one optimizer and loaders of rows of nine tokens."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def loader(self, num: int = 8, **more: Any) -> Any:
        return DataLoader(rows((9,) * num), **{"batch_size": 2, **more})

    def call(self) -> Any:
        return self.model(torch.ones(1, 1)).sum()

    def step(self) -> None:
        self.call().backward()
        self.optimizer.step()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    seams = Seams(lambda name, detail: made.said.append(detail))
    install(seams, ["trim_padding"])
    try:
        yield made
    finally:
        seams.remove()


def width(given: Any) -> int:
    return int(given["input_ids"].shape[1])


def trained(loop: Loop, loader: Any, each: int = 1) -> list[int]:
    """Widths of an epoch with a step after so many batches."""
    found = []
    for num, drawn in enumerate(loader, 1):
        found.append(width(drawn))
        loop.call().backward()
        if num % each == 0:
            loop.step()
    return found


@pytest.mark.parametrize(("each", "whole"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_training_is_cut_once_it_has_stepped_and_says_so_once(
    loop: Loop, each: int, whole: int, workers: int
) -> None:
    """With gradients that are accumulated too, and where workers put the batches together."""
    loader = loop.loader(num_workers=workers)
    assert trained(loop, loader, each) == [LENGTH] * whole + [NARROW] * (4 - whole)
    assert trained(loop, loader, each) == [NARROW] * 4, "the next epoch's first batch too"
    assert loop.said == ["16 of 64 columns in the first batch that it cuts"]


def test_a_program_that_collects_batches_of_its_training_ends_it_with_an_error(loop: Loop) -> None:
    """What an epoch puts together at its end (torch.cat): its first batch is whole, and no step sees that it fails."""
    kept = []
    with pytest.raises(GobrrrError, match="collects batches"):
        for drawn in loop.loader(40):
            loop.step()
            kept.append(drawn["input_ids"])
    assert len(kept) == 1 + HELD + 1, "one whole, those of two updates ago and before that, and one since"


def test_lists_of_all_batches_that_are_made_for_each_epoch_are_cut(loop: Loop) -> None:
    """The old one is held while the new one is made."""
    batches: list[Any] = []
    loader = loop.loader(48)
    for _ in range(3):
        batches = list(loader)
        for _ in batches:
            loop.step()
        assert len(batches) == 24
    assert set(map(width, batches)) == {NARROW}


@pytest.mark.parametrize("each", [1, 12])
def test_batches_that_are_held_until_their_update_are_cut(loop: Loop, each: int) -> None:
    """Trainers draw all batches of an update ahead."""
    ahead: list[Any] = []
    for drawn in loop.loader(96):
        ahead.append(drawn)
        if len(ahead) == each:
            loop.step()
            assert all(width(held) == NARROW for held in ahead[each:])
            ahead.clear()
    assert loop.said


def test_what_is_evaluated_is_not_cut(loop: Loop) -> None:
    """Programs put guesses for all batches together (torch.cat), and those of a training set as well."""
    train, valid = loop.loader(), loop.loader()
    for _ in range(2):
        assert trained(loop, train)[1:] == [NARROW] * 3
        with torch.no_grad():
            assert [width(drawn) for loader in (train, valid) for drawn in loader] == [LENGTH] * 8
        with torch.inference_mode():
            assert list(map(width, valid)) == [LENGTH] * 4
    loop.step()
    assert set(map(width, valid)) == {LENGTH}


def test_what_is_evaluated_with_gradients_on_while_it_is_drawn_is_not_cut(loop: Loop) -> None:
    """Accelerate draws one batch ahead: its last step follows the evaluation, and no batch of its own."""
    train, valid = loop.loader(), loop.loader()
    for loader in (valid, train):
        trained(loop, train)
        loop.model.eval()
        for drawn in loader:
            assert width(drawn) == LENGTH
            with torch.no_grad():
                loop.call()
        loop.model.train()
        loop.step()
    assert set(map(width, valid)) == {LENGTH}


def test_an_evaluation_inside_of_a_step_that_nothing_tells_from_a_training_is_not_cut(loop: Loop) -> None:
    train, valid = loop.loader(), loop.loader()
    for num, _ in enumerate(train):
        if num % 2:
            assert set(map(width, valid)) == {LENGTH}
            loop.call()
        loop.step()
    assert set(map(width, valid)) == {LENGTH} and width(next(iter(train))) == NARROW


def test_two_loaders_that_are_trained_on_in_turns_are_both_cut(loop: Loop) -> None:
    turns = [iter(loop.loader()), iter(loop.loader())]
    found = []
    for _ in range(3):
        for each in turns:
            found.append(width(next(each)))
            loop.step()
    assert found == [LENGTH] * 2 + [NARROW] * 4


def test_batches_that_another_thread_draws_are_left_alone(loop: Loop) -> None:
    """Gradients are off or on in each thread by itself."""
    loader, found = loop.loader(), []
    trained(loop, loader)
    thread = threading.Thread(target=lambda: found.extend(map(width, loader)))
    thread.start()
    thread.join()
    assert found == [LENGTH] * 4 and trained(loop, loader) == [NARROW] * 4


def test_data_sets_that_give_whole_batches_are_cut_too(loop: Loop) -> None:
    loader = DataLoader([batch(9, 9)] * 2, batch_size=None)
    assert trained(loop, loader) == [LENGTH, NARROW]


@pytest.mark.parametrize("more", [{"batch_size": None}, {"batch_sampler": [[0, 1], [2, 3]], "batch_size": 1}])
def test_samples_and_samplers_that_cannot_be_known_are_left_alone(loop: Loop, more: dict[str, Any]) -> None:
    loader = loop.loader(2 * LENGTH, **more)
    shapes = []
    for _ in range(2):
        for drawn in loader:
            shapes.append(drawn["input_ids"].shape[-1])
            loop.step()
    assert set(shapes) == {LENGTH} and not loop.said


def test_nothing_is_kept_of_loaders_and_models_that_are_gone(loop: Loop) -> None:
    loader = loop.loader()
    trained(loop, loader)
    gone = [weakref.ref(loader.batch_sampler), weakref.ref(loop.model)]
    del loader, loop.model, loop.optimizer
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_the_guard_takes_off_what_no_row_uses() -> None:
    whole = batch(10, 20, 3)
    off = cut_of((), whole)
    assert off(whole["input_ids"]).shape == (ROWS, 20) and off(torch.zeros(ROWS, LENGTH, 5)).shape == (ROWS, 20, 5)
    assert off(torch.zeros(ROWS, 5)).shape == (ROWS, 5) and off(torch.zeros(LENGTH)).shape == (LENGTH,)
    assert torch.equal(cut_of((whole,), {})(whole["input_ids"]), off(whole["input_ids"]))
    for other in (
        torch.zeros(ROWS, 1, LENGTH, LENGTH),
        1.0 - whole["attention_mask"].float(),
        whole["attention_mask"].flip(-1),
        torch.zeros_like(whole["attention_mask"]),
    ):
        given = {**whole, "attention_mask": other}
        assert cut_of((), given)(whole["input_ids"]) is whole["input_ids"]
    meant_otherwise = {**whole, "attention_mask": 1 - whole["attention_mask"].flip(-1)}
    meant_otherwise["input_ids"] = whole["input_ids"].flip(-1)
    assert cut_of((), meant_otherwise)(whole["input_ids"]) is whole["input_ids"]


def test_the_guard_knows_ids_and_mask_that_have_no_names() -> None:
    ids, mask = (batch(10, 20, 3)[name] for name in ("input_ids", "attention_mask"))
    for args, kwargs in (
        ((ids, mask), {}), ((mask.bool(), ids), {}), ((ids, torch.ones(ROWS), mask.int()), {}),
        ((ids,), {"attention_mask": mask}), ((), {"x": ids, "heeded": mask}), (((ids, mask),), {}),
        (({"ids": ids, "mask": mask}, 3), {}), (([ids, {"m": mask}],), {}),
    ):  # fmt: skip
        assert cut_of(args, kwargs)(ids).shape == (ROWS, 20)
    inside = ids.clone()
    inside[1, 5] = 0  # what pads stands for a word as well
    meant = mask.clone()
    meant[1, 5] = 0  # a word that is hidden
    short = batch(10, 20, 3, length=32)["attention_mask"]
    for other in ((inside, mask), (ids, meant), (ids, 1 - mask), (ids, 2 * mask), (ids, mask.float()), (ids, short)):
        assert cut_of(other, {})(ids) is ids, other
    assert cut_of((ids,), {})(ids) is ids


def test_the_guard_knows_the_real_tokens_of_what_is_given() -> None:
    whole = batch(10, 20, 3)
    real = tokens_of((), whole)
    ids = whole["input_ids"]
    assert real(ids).tolist() == [*range(1, 11), *range(1, 21), *range(1, 4)] == real(ids[:, :20]).tolist()
    assert real(torch.zeros(ROWS, LENGTH, 5)).shape == (33, 5) and real(ids[:, :7]).shape == (ROWS, 7)
    left = {name: each.flip(-1) for name, each in whole.items() if each.dim() == 2}
    assert sorted(tokens_of((), left)(left["input_ids"]).tolist()) == sorted(real(ids).tolist())
    assert tokens_of((ids,), {})(ids) is ids


PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.mix, self.out, self.drop = nn.Linear(16, 48), nn.Linear(16, 2), nn.Dropout(0.2)

    def forward(self, input_ids, attention_mask, labels):
        x = self.drop(self.words(input_ids) + self.places(torch.arange(input_ids.shape[1])))
        q, k, v = self.mix(x).chunk(3, -1)
        heeded = attention_mask[:, None, :].bool() HEEDS
        x = x + F.scaled_dot_product_attention(q, k, v, heeded, dropout_p=0.1 if self.training else 0.0)
        scores = self.out(x[:, 0])
        return F.cross_entropy(scores, labels), scores

def rows():
    for _ in range(256):
        length = int(torch.randint(4, 20, ()))
        mask = (torch.arange(64) < length).long()
        yield {"input_ids": torch.randint(1, 50, (64,)) * mask, "attention_mask": mask, "labels": length % 2}

torch.manual_seed(0)
model, data = Encoder(), list(rows())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
while True:
    for batch in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        model(**batch)[0].backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("heeds", "stack", "green", "given"), [
    ("", ("trim_padding",), True, "**batch"), ("", ("trim_padding", "bf16_autocast"), True, "**batch"),
    ("", ("fused_optimizer",), True, "**batch"), ("| True", ("trim_padding",), False, "**batch"),
    ("", ("trim_padding",), True, "*batch.values()"), ("| True", ("trim_padding",), False, "*batch.values()"),
])  # fmt: skip
def test_without_dropout_the_numbers_are_those_of_the_padded_program(
    heeds: str, stack: tuple[str, ...], green: bool, given: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text(PROGRAM.replace("HEEDS", heeds).replace("**batch", given))
    referee = LiveReferee(Program((sys.executable, "train.py"), source, 2e6, threads=1), tmp_path / "arms")
    found = referee.guard(stack)
    assert found.green is green, found
    without = {each.without_dropout for each in referee.guarding.seen}
    assert without == {"trim_padding" in stack}


@pytest.mark.parametrize(("expected", "ceiling"), [(2e6, 5e6), (0.0, 0.0)])
def test_batches_that_are_as_long_as_their_longest_row_promise_nothing(expected: float, ceiling: float) -> None:
    """BRR409 stands all the same: rows of like length together, or packed, would help."""
    finding = Finding("BRR409", "padding", "data", "note", Saving(0.0, expected, 5e6), "m")
    report = Report(verdict=Verdict("data", ""), step=Step(10, 10**7, 10**7), findings=(finding,))
    assert remedy("trim_padding").predicts(report).ceiling_ns == ceiling
