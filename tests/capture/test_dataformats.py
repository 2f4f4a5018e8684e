"""Which library a data set comes from: on classes that stand for theirs, and on theirs where they are installed."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset  # noqa: E402

from gobrrr.capture.facts.loader_facts import (  # noqa: E402
    DEEP,
    loader_facts,
    source_facts,
)


def theirs(module: str, name: str, base: type = object, **body: Any) -> type:
    """A class as if that module had defined it."""
    return type(name, (base,), {"__module__": module, **body})


def thing(kind: type, **held: Any) -> Any:
    made = kind()
    made.__dict__.update(held)
    return made


def column(**held: Any) -> Any:
    return thing(type(held.pop("name", "Value"), (), {}), **held)


Stream = theirs("datasets.iterable_dataset", "IterableDataset", num_shards=property(lambda self: self.count))
Table = theirs("datasets.arrow_dataset", "Dataset", __len__=lambda self: 4)
Pipeline = theirs("webdataset.pipeline", "DataPipeline")
Streaming = theirs("streaming.base.dataset", "StreamingDataset")


class Asked(BaseException):
    """Code of the program was run."""


class Wrapper(Dataset):
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __getattr__(self, name: str) -> Any:
        raise Asked(name)

    def __len__(self) -> int:
        raise Asked("len")


def split_by_worker(urls: Any) -> Any: ...
def split_by_node(urls: Any) -> Any: ...
def _batched(samples: Any) -> Any: ...


def pipeline(*stages: Any, kind: str = "SimpleShardList") -> Any:
    listed = thing(theirs("webdataset.shardlists", kind), urls=["0.tar", "1.tar", "2.tar"])
    return thing(Pipeline, pipeline=[listed, *stages])


def test_a_stream_tells_its_shards_and_that_workers_share_them() -> None:
    found = source_facts(thing(Stream, count=3, _formatting=column(format_type="numpy")))
    assert found == {"kind": "datasets stream", "wrapped": False, "shares": True, "shards": 3, "format": "numpy"}


def test_a_count_that_the_program_derives_or_that_fails_is_not_asked() -> None:
    def asked(self: Any) -> int:
        raise Asked

    derived = type("Mine", (Stream,), {"__module__": "mine", "num_shards": property(asked)})
    assert source_facts(thing(derived, count=5))["shards"] == 5
    assert source_facts(thing(Stream)) is None, "the library's own raises"


def test_counting_is_left_while_the_program_counts_calls() -> None:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        found = source_facts(thing(Stream, count=3))
    finally:
        sys.setprofile(before)
    assert found["kind"] == "datasets stream" and found["shards"] is None


@pytest.mark.parametrize(
    ("features", "numbers"),
    [
        ({"x": column(name="List", feature=column(dtype="float32"))}, True),
        ({"x": column(name="List", feature=column(name="List", feature=column(dtype="int64")))}, True),
        ({"x": column(name="Array2D", dtype="uint8")}, True),
        ({"x": column(name="List", feature=column(dtype="string")), "y": column(dtype="int64")}, False),
        ({"x": column(name="Image", dtype="PIL.Image.Image")}, False),
        (None, False),
    ],
    ids=["list", "lists of lists", "array", "words and a number", "picture", "unknown"],
)
def test_a_table_tells_its_format_and_whether_rows_are_lists_of_numbers(features: Any, numbers: bool) -> None:
    info = column(features=features)
    table = thing(Table, _format_type=None, _info=info)
    assert source_facts(table) == {"kind": "datasets", "wrapped": False, "format": "", "numbers": numbers}
    assert source_facts(thing(Table, _format_type="torch", _info=info))["format"] == "torch"


def test_it_is_found_behind_wrappers_and_nothing_of_theirs_is_run() -> None:
    table = thing(Table, _format_type=None)
    assert source_facts(Subset(table, range(2)))["wrapped"] is False
    assert source_facts(Wrapper(dataset=Wrapper(rows=table, path="x")))["wrapped"] is True
    assert source_facts(Wrapper(one=table, two=table)) is None, "which of them it reads nobody knows"
    assert source_facts(Wrapper(path="x")) is None


def test_wrappers_without_end_are_left() -> None:
    ring = Wrapper()
    ring.__dict__["dataset"] = ring
    assert source_facts(ring) is None
    deep = thing(Table, _format_type=None)
    for _ in range(DEEP + 1):
        deep = Wrapper(dataset=deep)
    assert source_facts(deep) is None


def test_folders_of_the_same_name_are_no_library() -> None:
    assert source_facts(thing(theirs("datasets.mine", "Dataset"))) is None
    assert source_facts(thing(theirs("streaming", "StreamingDataset"))) is None


def test_a_pipeline_tells_its_shards_who_shares_them_and_whether_it_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(made: Any) -> tuple[Any, ...]:
        found = source_facts(made)
        return found["shares"], found["shards"], found["batched"]

    batches = thing(theirs("webdataset.filters", "FilterFunction"), f=_batched)
    assert said(pipeline(split_by_worker)) == (True, 3, False)
    assert said(pipeline(batches)) == (False, 3, True), "each worker reads all"
    assert said(pipeline(kind="ResampledShards")) == (True, None, False), "no worker runs out of shards"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert said(pipeline(split_by_node, split_by_worker)) == (True, 1, False)
    assert said(thing(Pipeline)) == (False, None, False)


def streaming(**held: Any) -> Any:
    streams = [column(remote=held.pop("remote", "s3://x"))]
    given = {"streams": streams, "batch_size": 8, "predownload": 64, "cache_limit": None, "shuffle": True,
             "num_shards": 12, "max_shard_size_across_all_streams": 100, **held}  # fmt: skip
    return source_facts(thing(Streaming, **given))


def test_streaming_tells_how_far_it_fetches_ahead_and_whether_its_cache_is_too_small() -> None:
    assert streaming() == {"kind": "streaming", "wrapped": False, "shares": True, "batch_size": 8, "predownload": 64,
                           "remote": True, "evicts": False}  # fmt: skip
    assert streaming(cache_limit=1199)["evicts"] and not streaming(cache_limit=1200)["evicts"]
    assert not streaming(cache_limit=1199, shuffle=False)["evicts"], "each shard is read once"
    assert not streaming(remote=None)["remote"]


def test_what_is_not_what_it_was_is_not_told() -> None:
    assert streaming(predownload="64", batch_size=True)["predownload"] is None
    assert streaming(cache_limit=10, max_shard_size_across_all_streams=object()) is None


def test_a_loader_has_it_among_its_facts() -> None:
    class Plain(Dataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return torch.tensor(index)

    assert loader_facts(iter(DataLoader(Plain())), sys._getframe())["source"] is None
    table = thing(Table, _format_type=None)
    assert loader_facts(iter(DataLoader(table)), sys._getframe())["source"]["kind"] == "datasets"


def test_the_hugging_face_library_itself() -> None:
    library = pytest.importorskip("datasets", exc_type=ImportError)
    table = library.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]})
    assert source_facts(table) == {"kind": "datasets", "wrapped": False, "format": "", "numbers": True}
    assert source_facts(table.with_format("numpy"))["format"] == "numpy"
    assert source_facts(table.select_columns("y"))["numbers"] is False
    stream = table.to_iterable_dataset(num_shards=2)
    assert isinstance(stream.with_format("torch"), IterableDataset)
    found = source_facts(stream.with_format("torch").map(dict))
    assert (found["kind"], found["shards"], found["format"]) == ("datasets stream", 2, "torch")


def test_webdataset_itself(tmp_path: Path) -> None:
    library = pytest.importorskip("webdataset", exc_type=ImportError)
    for number in range(2):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo(f"{number}.cls"), io.BytesIO())
    urls = [str(tmp_path / f"{number}.tar") for number in range(2)]
    plain = library.WebDataset(urls, shardshuffle=False)
    found = {"kind": "webdataset", "wrapped": False, "shares": True, "shards": 2, "batched": False}
    assert source_facts(plain) == found
    assert source_facts(plain.batched(2).with_length(1)) == found | {"batched": True}
    assert source_facts(library.WebDataset(urls, resampled=True))["shards"] is None


def test_streaming_itself(tmp_path: Path) -> None:
    library = pytest.importorskip("streaming", exc_type=ImportError)
    with library.MDSWriter(out=str(tmp_path / "far"), columns={"x": "int"}) as out:
        out.write({"x": 1})
    made = library.StreamingDataset(remote=str(tmp_path / "far"), local=str(tmp_path / "near"), batch_size=2)
    assert source_facts(made) == {"kind": "streaming", "wrapped": False, "shares": True, "batch_size": 2,
                                  "predownload": 16, "remote": True, "evicts": False}  # fmt: skip
