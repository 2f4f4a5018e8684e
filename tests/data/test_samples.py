"""One sample as bytes and back: the same, whatever it is made of; refused by name where it is not kept."""

from __future__ import annotations

import collections
import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.data.sample_cache.samples import Damaged, decode, encode
from gobrrr.errors import GobrrrError
from tests.data.cache_samples import same, samples


def back(sample: Any, frozen: bool = False) -> Any:
    return decode(np.frombuffer(bytearray(encode(sample)), np.uint8), frozen)


@settings(max_examples=400, deadline=None)
@given(samples)
def test_what_goes_in_comes_out(sample: Any) -> None:
    assert same(back(sample), sample)


def test_layout_and_type_are_kept() -> None:
    image = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert back(image).is_contiguous(memory_format=torch.channels_last) and back(image).equal(image)
    assert back(np.asfortranarray(np.ones((2, 3)))).flags.f_contiguous
    assert back(torch.ones(3).expand(2, 3)).equal(torch.ones(2, 3))
    assert back(np.arange(6)[::-2]).tolist() == [5, 3, 1]
    assert type(back(np.float32(1))) is np.float32 and type(back(True)) is bool
    assert back({"a": torch.tensor(3 + 4j).conj()})["a"] == 3 - 4j


def test_one_element_of_a_wider_row_is_kept() -> None:
    assert back(torch.arange(4.0).reshape(1, 4)[:, 1]).tolist() == [1.0]
    assert back(torch.tensor([1 + 2j]).imag).tolist() == [2.0]
    assert back(torch.arange(8.0).reshape(2, 4)[1:, 1:2].to(torch.bfloat16)[:, 0]).tolist() == [5.0]


def test_the_default_device_is_none_of_its_business() -> None:
    data = bytearray(encode([torch.zeros(0, 4), torch.ones(2)]))
    with torch.device("meta"):
        assert [one.device.type for one in decode(data)] == ["cpu", "cpu"]


def test_what_comes_out_can_be_written_and_shares_nothing() -> None:
    value = back({"a": torch.zeros(3), "b": np.zeros(3), "c": torch.zeros(3)})
    value["a"] += 1
    value["b"] += 2
    assert value["a"].tolist() == [1, 1, 1] and value["b"].tolist() == [2, 2, 2] and value["c"].tolist() == [0, 0, 0]
    frozen = back({"b": np.zeros(3)}, frozen=True)["b"]
    with pytest.raises(ValueError, match="read-only"):
        frozen += 1


class Named(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ({"a": [1, {"b": {2}}]}, r"the sample\['a'\]\[1\]\['b'\] is set, which is not kept"),
        (Named(a=1), "test_samples.Named, which"),
        (collections.namedtuple("Pair", "a b")(1, 2), "Pair, which is not kept"),
        (np.array([object()]), "the sample is numpy.ndarray of object"),
        (np.ma.masked_array([1], [True]), "MaskedArray"),
        (np.zeros(1, [("a", "i4")]), "ndarray of"),
        (torch.nn.Parameter(torch.ones(1)), "torch.nn.parameter.Parameter"),
        (torch.ones(1, requires_grad=True), "a tensor that requires grad"),
        (torch.ones(1).to_sparse(), "a torch.sparse_coo tensor"),
        (torch.ones(1, device="meta"), "a tensor on meta"),
        ({(1, 2): 3}, "has a key that is not kept: tuple"),
        ({2**70: 3}, "has a key that is not kept: int"),
        (lambda: 1, "function"),
    ],
)
def test_what_is_not_kept_is_named(sample: Any, said: str) -> None:
    with pytest.raises(GobrrrError, match=said):
        encode(sample)


def test_a_sample_in_itself_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(GobrrrError, match="nested deeper than 64"):
        encode(loop)


@settings(max_examples=300, deadline=None)
@given(samples, st.randoms(use_true_random=False))
def test_hostile_bytes_are_damaged_or_a_sample_within_them(sample: Any, draw: random.Random) -> None:
    """The checksum is the store's; what passes it by design must still be neither a crash nor a reach beyond."""
    data = bytearray(encode(sample))
    for _ in range(draw.randrange(1, 6)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    data = data[: draw.randrange(len(data) + 1)] if draw.random() < 0.3 else data
    try:
        decode(np.frombuffer(data, np.uint8))
    except Damaged:
        pass


@pytest.mark.parametrize("tree", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc1"])
def test_lengths_that_are_claimed_take_no_memory(tree: bytes) -> None:
    with pytest.raises(Damaged):
        decode(len(tree).to_bytes(4, "little") + tree)


def test_a_shape_beyond_the_bytes_is_damaged() -> None:
    good = encode(torch.zeros(7))
    at = good.index(b"\x91\x07")  # the shape, as msgpack has it
    with pytest.raises(Damaged):
        decode(bytearray(good[:at] + b"\x91\x7f" + good[at + 2 :]))


def test_nothing_holds_a_sample_once_it_is_dropped() -> None:
    """A cycle would keep every sample's memory until the next collection."""
    gc.disable()
    try:
        tensor = back((1, [torch.zeros(1000)]))[1][0]
        gone = weakref.ref(tensor)
        buffer = np.frombuffer(bytearray(encode((np.zeros(1000),))), np.uint8)
        held = weakref.ref(buffer)
        sample = decode(buffer)
        del tensor, sample, buffer
        assert gone() is None and held() is None
    finally:
        gc.enable()
