"""Lengths of the batches that a loader gives, held against lengths by hand; what is no sequence, and what it costs."""

from __future__ import annotations

import gc
import weakref
from collections import Counter, UserDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from gobrrr.capture.facts import lengths as looking  # noqa: E402
from gobrrr.capture.facts.lengths import PAUSE, Lengths, Table, masks_in  # noqa: E402
from gobrrr.recording.run_folder.noted_facts import facts_of  # noqa: E402
from gobrrr.recording.run_folder.run import load_run  # noqa: E402
from tests.transparency.training import notes, watched  # noqa: E402

WIDTH = 16
LENGTHS = [3, 16, 9, 9]


def mask(lengths: list[int] = LENGTHS, width: int = WIDTH) -> Any:
    return (torch.arange(width) < torch.tensor(lengths)[:, None]).long()


def ids(lengths: list[int] = LENGTHS, pad: int = 0, width: int = WIDTH) -> Any:
    there = mask(lengths, width)
    return torch.arange(1, width + 1).repeat(len(lengths), 1) * there + pad * (1 - there)


def seen(*batches: Any, batch_size: Any = None) -> Table:
    """One loader's batches, each looked at."""
    found = Lengths()
    iterator = SimpleNamespace(_index_sampler=SimpleNamespace(batch_size=batch_size))
    for batch in batches:
        frame = SimpleNamespace(f_locals={"data": batch, "self": iterator})
        found.look(("loader",), frame, 1 << 61)  # type: ignore[arg-type]
    assert not found.error
    return found.tables[("loader",)]


OTHERS = [5, 12, 4, 10]
FEW = torch.nn.functional.pad(torch.ones(4, 2, dtype=torch.int64), (0, WIDTH - 2))


def texts(name: str, masked: Any, made: Any) -> dict[str, Any]:
    return {f"{name}_attention_mask": masked, f"{name}_input_ids": made}


@pytest.mark.parametrize(
    ("batch", "several"),
    [
        ({**texts("a", mask(), ids()), **texts("b", mask(OTHERS), ids())}, True),
        ({"decoder_attention_mask": mask(OTHERS), "decoder_input_ids": ids(), "attention_mask": mask()}, True),
        ([{"attention_mask": mask()}, {"attention_mask": mask(OTHERS)}], True),
        ((ids(), ids(OTHERS)), True),
        ((ids(), ids()), False),
        ({"attention_mask": mask(), "decoder_attention_mask": mask()}, False),
        ({"attention_mask": mask(), "global_attention_mask": FEW}, False),
        ({"attention_mask": mask(), "extra_attention_mask": torch.full((4, WIDTH), 7)}, False),
        ((ids(), ids(OTHERS, pad=-100)), False),
        ((ids(), torch.arange(WIDTH).repeat(4, 1)), False),
        ((ids(), ids([2, 15, 8, 8])), False),
        ({"attention_mask": mask(), "global_attention_mask": mask([1, 4, 2, 3])}, False),
        ({"attention_mask": mask(), **texts("d", mask([1, 4, 2, 3], width=12), ids([1, 4, 2, 3], width=12))}, True),
        ({"input_ids": ids(), "global_attention_mask": FEW}, False),
        ({"input_ids": ids(), "inverted_attention_mask": 1 - mask()}, False),
        ({"input_ids": ids(), "attention_mask": mask().float(), **texts("b", FEW, ids())}, False),
        ({**dict.fromkeys(map(str, range(99))), "attention_mask": mask()}, False),
    ],
    ids=["masks with names", "encoder and decoder", "two texts", "two texts by their runs", "alike", "masks alike",
         "a few global tokens", "no mask", "labels", "places", "ids without the first", "a question's tokens",
         "shorter texts, padded apart", "global tokens alone", "the inverse", "no table",
         "many columns"],
)  # fmt: skip
def test_several_sequences_of_a_sample_are_known_by_their_other_lengths(batch: Any, several: bool) -> None:
    """Pairs of texts for an encoder of sentences; the lengths that are told are the first one's, or the mask's."""
    found = seen(batch)
    assert found.facts()["several"] == several and sorted(found.lengths.elements()) == sorted(LENGTHS)


def test_sequences_that_stand_in_columns_are_seen_by_the_loaders_batch_size() -> None:
    """As recurrent nets are given them; the last batch, which is smaller, does not say which way it stands."""
    found = seen(
        (ids(pad=7).t(), ids().t()), (ids([5, 12, 2, 12], width=12, pad=7).t(),), (ids([3, 9]).t(),), batch_size=4
    )
    assert found.lengths == Counter([*LENGTHS, 5, 12, 2, 12]) and found.batches == 2 and found.turned
    assert (found.cells, found.narrowest, found.widest) == (4 * 16 + 4 * 12, 12, 16)


def test_lengths_of_a_mask_stand_in_rows_whatever_the_ids_did_before() -> None:
    """The first batch's columns showed no padding, and nothing was counted by them."""
    facts = seen((torch.arange(64).reshape(WIDTH, 4),), {"attention_mask": mask()}, batch_size=4).facts()
    assert (facts["batches"], facts["source"], facts["turned"]) == (1, "mask", False)


BAG = torch.tensor([[0, 2, 0, 1, 3, 0, 0, 1] * 2] * 4)


@pytest.mark.parametrize("first", [ids([WIDTH] * 4), ids([WIDTH] * 4).masked_fill(ids([WIDTH] * 4) > 9, -100)])
def test_batches_without_padding_count_where_the_mask_has_no_name(first: Any) -> None:
    """A tenth of them had some: what the others hold is no padding. Before the first mask nothing is known of them."""
    full = (ids([WIDTH] * 4), torch.ones_like(mask()))
    found = seen((first, torch.ones_like(mask())), (ids(), mask()), full, full)
    assert found.facts()["source"] == "mask" and found.batches == 3
    assert found.lengths == Counter([*LENGTHS, *[WIDTH] * 8]) and found.cells == 3 * 4 * WIDTH
    assert seen((ids(), mask()), (ids(),), (ids(), ids())).batches == 1, "what is at its place is no mask"


def test_labels_of_a_masked_language_model_are_no_padding() -> None:
    """One token in seven is to be guessed, and the batch has no padding at all."""
    torch.manual_seed(0)
    full = torch.randint(5, 1000, (32, 64))
    labels = full.masked_fill(torch.rand(full.shape) > 0.15, -100)
    assert seen((full, labels)).ids is None and seen((labels,)).ids is None
    assert seen((ids(), labels[:4, :WIDTH])).ids == (0, 0.0), "real padding is still seen beside them"


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.bool, torch.uint8])
def test_a_mask_in_a_batch_without_names_is_known_by_its_ids(kind: torch.dtype) -> None:
    """(ids, mask, labels): labels of a masked language model, and padding on the left, end in no run of the ids."""
    labels = ids().masked_fill(ids() % 3 != 0, -100)
    assert seen((labels, ids(), mask().to(kind))).facts()["source"] == "mask"
    left = seen((ids().flip(1), mask().flip(1).to(kind)))
    assert left.facts()["source"] == "mask" and left.lengths == Counter(LENGTHS)


@pytest.mark.parametrize(
    "batch",
    [
        (ids(), mask(OTHERS)), (ids(), 1 - mask()), (ids(), mask().float()), (ids(), mask()[:, :-1]),
        (ids(), torch.ones_like(mask())), (mask(), mask().clone()),
        (BAG, (BAG > 0).long()), ((BAG * 9).to(torch.uint8), (BAG > 0).to(torch.uint8)),
        (ids().to(torch.uint8), mask()),
    ],
    ids=["of others", "inverse", "floats", "narrower", "no padding", "no ids", "a bag", "pictures", "no tokens"],
)  # fmt: skip
def test_zeros_and_ones_that_hide_no_padding_are_no_mask(batch: Any) -> None:
    assert seen(batch).facts()["source"] == "pad"


def test_a_mask_without_a_name_stands_in_rows() -> None:
    """One with a column for each sequence would be counted across them."""
    assert seen((ids().t(), mask().t()), batch_size=4).facts()["source"] == "pad"


@pytest.mark.parametrize("batch_size", [None, 0, 16, "4", 3, True])
def test_sequences_in_rows_stay_so_whatever_a_loader_says_of_others(batch_size: Any) -> None:
    assert seen((ids(),), batch_size=batch_size).lengths == Counter(LENGTHS) or batch_size == 16
    assert not seen((ids(width=4 * len(LENGTHS)),), batch_size=4).turned


def test_a_square_batch_is_read_by_rows_and_never_mixed_with_columns() -> None:
    square = ids([3, 8, 5, 8, 2, 8, 4, 6], width=8)
    assert seen((square,), batch_size=8).lengths == Counter([3, 8, 5, 8, 2, 8, 4, 6])
    assert seen((ids([3, 8, 5, 8, 2, 8, 4, 6], width=12).t(),), (square,), batch_size=8).batches == 1


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float16"])
def test_a_mask_that_torch_cannot_look_at_ends_nobodys_looking(dtype: str) -> None:
    found = seen({"attention_mask": mask().to(getattr(torch, dtype))}, {"attention_mask": mask()})
    assert found.batches == 1


def test_a_nested_batch_ends_nobodys_looking() -> None:
    nested = torch.nested.nested_tensor([torch.ones(9, dtype=torch.int64), torch.ones(12, dtype=torch.int64)])
    assert seen({"attention_mask": nested}, (nested,), {"attention_mask": mask()}).batches == 1


def test_a_look_is_unseen_and_none_is_taken_while_the_program_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's own function mode sees no op of ours."""
    called: list[str] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(func.__name__)
            return func(*args, **(kwargs or {}))

    batch = {"attention_mask": mask()}
    with Mode():
        assert seen(batch).batches == 1
    assert not called
    monkeypatch.setattr(looking, "is_tracing", lambda: True)
    assert seen(batch).batches == 0


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": ids(), "attention_mask": mask()},
        {"input_ids": ids().flip(1), "attention_mask": mask().flip(1)},
        {"attention_mask": mask().bool()},
        {"attention_mask": mask().to(torch.uint8)},
        UserDict(input_ids=ids(), attention_mask=mask()),
        ({"attention_mask": mask()}, torch.ones(4)),
        {"text": {"attention_mask": mask()}, "y": 1},
        (ids(), torch.ones(4)),
        [ids(pad=7).int()],
        {"ids": ids(), "labels": ids([2, 2, 2, 2], pad=-100), "places": torch.arange(WIDTH).repeat(4, 1)},
    ],
)
def test_lengths_are_those_of_the_rows(batch: Any) -> None:
    """By a mask, wherever the padding lies; else by the runs that rows end with, of labels and ids those of the ids."""
    found = seen(batch, batch)
    assert found.lengths == Counter(LENGTHS * 2)
    assert (found.batches, found.rows, found.cells, found.to_longest) == (2, 8, 2 * 4 * WIDTH, 2 * 4 * 16)


def test_the_longest_row_of_each_batch_is_what_it_must_be_padded_to() -> None:
    found = seen(
        {"attention_mask": mask([2, 5])}, {"attention_mask": mask([4, 9], 24)}, {"attention_mask": mask([0, 8])}
    )
    assert found.to_longest == 2 * 5 + 2 * 9 + 2 * 8 and found.cells == 2 * (16 + 24 + 16)
    assert (found.narrowest, found.widest, found.rows) == (16, 24, 6)
    assert found.lengths == Counter([2, 5, 4, 9, 8]), "a row without a token is none, though it is computed on"


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(4, WIDTH),
        {"attention_mask": mask().float()},
        {"attention_mask": 2 * mask()},
        {"attention_mask": torch.ones(4, 1, WIDTH, WIDTH)},
        (torch.randint(1, 50, (4, WIDTH)),),  # nothing ends alike
        (ids().to(torch.uint8),),  # a picture
        (mask(),),  # a mask whose name nobody knows
        ids(width=4, lengths=[1, 2, 4, 4]),  # columns of a table
        "text",
        None,
    ],
)
def test_what_is_no_padded_sequence_has_no_length(batch: Any) -> None:
    assert seen(batch).batches == 0


def test_a_pad_value_that_was_found_is_looked_for_in_batches_without_much_padding() -> None:
    """Padding to the longest of the batch leaves batches of which most rows end in tokens."""
    found = seen((ids(),), (ids([16, 16, 16, 5]),), (ids([16, 16, 16, 16]),))
    assert found.lengths == Counter([*LENGTHS, 16, 16, 16, 5, 16, 16, 16, 16])


def test_a_look_is_followed_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([800, 1_000, 700_000])
    monkeypatch.setattr(looking, "perf_counter_ns", lambda: next(clock))
    found, frame = Lengths(), SimpleNamespace(f_locals={"data": {"attention_mask": mask()}})
    for now in (10, 900, 1_001, 1_000 + 100 * PAUSE - 1):  # the second look took 100 ns; the first has to load much
        found.look(("a",), frame, now)  # type: ignore[arg-type]
    assert found.tables[("a",)].batches == 2
    found.look(("a",), frame, 1_000 + 100 * PAUSE)  # type: ignore[arg-type]
    assert found.tables[("a",)].batches == 3


def test_looking_ends_where_enough_different_lengths_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MAX_LENGTHS", 2)
    assert seen({"attention_mask": mask([1, 2, 3])}).due == 1 << 62


def test_what_goes_wrong_ends_the_looking_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    found, frame = Lengths(), SimpleNamespace(f_locals={"data": {"attention_mask": mask()}})
    monkeypatch.setattr(looking, "masks_in", broken)
    found.look(("a",), frame, 0)  # type: ignore[arg-type]
    assert "ZeroDivision" in found.error
    monkeypatch.undo()
    found.look(("a",), frame, 1 << 60)  # type: ignore[arg-type]
    assert found.tables[("a",)].batches == 0


def test_what_lies_on_a_device_is_not_waited_for() -> None:
    assert list(masks_in({"attention_mask": mask().to("meta")})) == []


def trained(steps: int = 60, alive: list[Any] | None = None) -> None:
    model = torch.nn.Embedding(WIDTH + 1, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [{"input_ids": row, "attention_mask": there} for row, there in zip(ids(), mask(), strict=True)]
    for _ in range(steps):
        for batch in DataLoader(data, batch_size=2, shuffle=True):
            model(batch["input_ids"]).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if alive is not None:
                alive.append(weakref.ref(batch["attention_mask"]))


@pytest.mark.slow
def test_a_watched_program_leaves_the_lengths_of_its_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PAUSE", 0)
    alive: list[Any] = []
    with watched(tmp_path):
        trained(alive=alive)
        gc.collect()
        assert all(ref() is None for ref in alive), "no batch is held"
    (recording,) = load_run(tmp_path)
    (found,) = facts_of(recording, []).lengths
    assert found.fits and found.source == "mask" and found.widest == WIDTH and found.batches > 50
    assert {length for length, _ in found.lengths} <= set(LENGTHS) and found.rows == 2 * found.batches
    assert notes(tmp_path).startswith("[]")
