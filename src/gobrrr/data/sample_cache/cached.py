"""A data set whose samples are computed once: kept in a folder, for this and later epochs, processes and workers."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import secrets
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch.utils.data import Dataset, IterableDataset

from gobrrr.data.sample_cache.fingerprints import digest
from gobrrr.data.sample_cache.names import name_of
from gobrrr.data.sample_cache.sameness import check_same
from gobrrr.data.sample_cache.samples import Damaged, decode, encode
from gobrrr.data.sample_cache.staleness import Watch
from gobrrr.data.sample_cache.store import Store
from gobrrr.errors import GobrrrError
from gobrrr.system import files

SCHEMA = "gobrrr.cache/1"
_FACTS = "cache.json"
_OWN = frozenset({"dataset", "function", "store", "key", "watch"})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
_MOST_FACTS = 1 << 16
"""Bytes of the file that says what a folder holds."""
_OTHER = "name another folder, or delete this one; key= names a version yourself where the fingerprint sees too much"


class _Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Origin of a folder's samples. `key`: the caller's own, which stands for code and values."""

    schema: str
    kind: str
    length: int
    key: str | None
    dataset: str
    function: str


def cache(
    dataset: Any,
    folder: str | os.PathLike[str],
    *,
    function: Callable[[Any], Any] | None = None,
    key: str | None = None,
    check: bool = True,
    copy: bool = True,
    leave_free: int = 1 << 30,
) -> CachedDataset:
    """`dataset`, or `function` of its samples, each computed once and read from `folder` from then on.

    Several processes may open and fill one folder at once: the workers of a DataLoader, the ranks of a job. A process
    may be killed at any moment; the next goes on with what is there.

    - `key`: your own name for data and function. Without it a fingerprint of their code and values decides whether a
      folder's samples are theirs, and another folder is refused. It does not see what lies in files (docs/fix/cache).
    - `check`: compute four samples twice and refuse what is random; a folder's samples are held against the data set.
    - `copy`: samples are yours to change. Without it arrays are read-only and tensors share pages with the file: what
      you write to them stays in this process, and the sample is read from the file the next time.
    - `leave_free`: bytes of the disk that are left; then, and where a write fails, samples are given and not kept.

    Raises GobrrrError for what has no length or no index, for samples that are not nested dicts, lists and tuples of
    tensors, NumPy arrays, numbers, strings, bytes and None, for what is random, and for a folder of something else.
    """
    length = _length(dataset)
    facts = _facts(dataset, function, key, length)
    place = Path(folder)
    _claim(place, facts)
    store = Store(place.absolute(), length, _seed(facts), leave_free, copy)
    cached = CachedDataset(dataset, function, store, key, {str(facts)})
    if check:
        check_same(lambda index: _encoded(index, cached.compute(index)), cached.payload, length)
        cached.watch.known = {str(facts), cached._fingerprint}  # it may have opened a file, or counted
    if key is not None:
        cached.watch.known = None
    return cached


class CachedDataset(Dataset[Any]):
    """Result of `cache`. `dataset` is the data set it was made from; `compute(index)` goes past the cache.

    Other attributes are those of `dataset`, to be read and to be set: a worker_init_fn, set_epoch.
    """

    def __init__(
        self,
        dataset: Any,
        function: Callable[[Any], Any] | None,
        store: Store,
        key: str | None = None,
        known: set[str] | None = None,
    ) -> None:
        self.dataset = dataset
        self.function = function
        self.store = store
        self.key = key
        self.watch = Watch(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "watch" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.watch.now()  # a method may change it
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            self.watch.now()
            setattr(self.dataset, name, value)

    @property
    def _fingerprint(self) -> str:
        """Identity for another cache around it, and later for itself: not the state of the store."""
        return str(_facts(self.dataset, self.function, self.key, self.store.length))

    def _look(self) -> str:
        return self._fingerprint

    def _check(self) -> None:
        """Say once where the data set is another than the one that the samples are of."""
        before = self.watch.changed
        if not self.watch.is_same(self._look) and not before:
            warnings.warn(
                f"the data set or function of {self.store.folder} has changed since cache(): samples are computed anew "
                "and not kept; call cache() once it is as it shall be (key= where it changes by being used)",
                RuntimeWarning,
                stacklevel=3,
            )

    def __len__(self) -> int:
        return self.store.length

    def __getitem__(self, at: Any) -> Any:
        index = _index(at)
        self._check()
        if not 0 <= index < self.store.length:
            return self._keep(index, self._computed(index))  # from the end, or an error: as the data set has it
        found, sample = self._kept(index)
        return sample if found else self._keep(index, self._computed(index))

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """The samples in this order; those that are missing come in one call, where the data set knows such calls."""
        batched = getattr(self.dataset, "__getitems__", None)
        if not callable(batched):
            return [self[at] for at in indices]
        wanted = [_index(at) for at in indices]
        self._check()
        ready = [self._kept(index) if 0 <= index < self.store.length else (False, None) for index in wanted]
        missing = [index for index, (found, _) in zip(wanted, ready, strict=True) if not found]
        if missing:
            self.watch.before(self._look)
        given = list(batched(missing)) if missing else []
        if len(given) != len(missing):
            raise GobrrrError(
                f"__getitems__ of {type(self.dataset).__name__} gave {len(given)} samples for {len(missing)} indices",
                "it has to give one for each, in their order",
            )
        applied = [self._apply(one) for one in given]
        if missing:
            self.watch.after(self._look)
        fresh = iter(self._keep(index, one) for index, one in zip(missing, applied, strict=True))
        return [sample if found else next(fresh) for found, sample in ready]

    def compute(self, index: int) -> Any:
        """The sample, computed."""
        return self._apply(self.dataset[index])

    def _computed(self, index: int) -> Any:
        self.watch.before(self._look)
        sample = self.compute(index)
        self.watch.after(self._look)
        return sample

    def payload(self, index: int) -> bytes | None:
        """The bytes that are kept of it, if any."""
        found = self.store.get(index)
        return None if found is None else bytes(found)

    def _apply(self, sample: Any) -> Any:
        return sample if self.function is None else self.function(sample)

    def _kept(self, index: int) -> tuple[bool, Any]:
        payload = None if self.watch.changed else self.store.get(index)
        if payload is not None:
            try:
                return True, decode(payload, frozen=not self.store.copy)
            except Damaged:
                self.store.damaged(index)
        return False, None

    def _keep(self, index: int, sample: Any) -> Any:
        """The sample as it will be read, not the data set's own object, which must not be changed."""
        payload = _encoded(index, sample)
        if 0 <= index < self.store.length and not self.watch.changed:
            self.store.put(index, payload)
        return decode(payload, frozen=not self.store.copy)


def _encoded(index: int, sample: Any) -> bytearray:
    try:
        return encode(sample)
    except GobrrrError as error:
        raise GobrrrError(f"sample {index} cannot be kept: {error.message}", error.hint) from None


def _index(at: Any) -> int:
    try:
        return operator.index(at)
    except TypeError:
        raise GobrrrError(
            f"a sample is kept by its integer index, not by {at!r}", "take dataset[i], or the data set under the cache"
        ) from None


def _length(dataset: Any) -> int:
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise GobrrrError(
            f"{name} gives samples in a row, without an index", "a cache needs dataset[i] and len(dataset)"
        )
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        raise GobrrrError(f"{name} has no length", "give it a __len__: a cache knows samples by their index") from None


def _facts(dataset: Any, function: Any, key: str | None, length: int) -> _Facts:
    kind = name_of(type(dataset))
    if key is not None:
        return _Facts(SCHEMA, kind, length, key, "", "")
    return _Facts(SCHEMA, kind, length, None, digest(dataset), digest(function))


def _seed(facts: _Facts) -> int:
    return zlib.crc32(msgspec.json.encode(facts))


def _claim(folder: Path, facts: _Facts) -> None:
    """Make the folder for these samples, or see that it is theirs. Raises GobrrrError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(folder / _FACTS):
            _refuse_others(folder)
            _write_once(folder / _FACTS, msgspec.json.encode(facts))
        with files.opened(folder / _FACTS, follow=False) as file:
            data = file.read(_MOST_FACTS)
    except OSError as error:
        reason = error.strerror or str(error)
        raise GobrrrError(f"no cache in {folder}: {reason}", "name a folder that can be written") from None
    try:
        held = msgspec.json.decode(data, type=_Facts)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise GobrrrError(
            f"{folder / _FACTS} is damaged or of another version of gobrrr", "delete the folder"
        ) from None
    if held != facts:
        raise GobrrrError(f"{folder} holds samples of something else: {_difference(held, facts)}", _OTHER)


def _refuse_others(folder: Path) -> None:
    """A folder that holds anything is no place for a cache; what another process writes before its facts is."""
    others = [one.name for one in folder.iterdir() if not (one.name.startswith(".") and one.name.endswith(".part"))]
    if others and not os.path.lexists(folder / _FACTS):
        raise GobrrrError(f"{folder} holds other files and no cache", "name a new folder, or an empty one")


def _write_once(path: Path, data: bytes) -> None:
    """Whole, and by the first of several processes."""
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(part)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno in _FULL:
                raise
            part.replace(path)  # no hard links on this file system
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _difference(held: _Facts, facts: _Facts) -> str:
    if held.schema != facts.schema:
        return f"they are kept as {held.schema}"
    if held.kind != facts.kind:
        return f"of {held.kind}, not {facts.kind}"
    if held.length != facts.length:
        return f"of {held.length:,} samples, not {facts.length:,}"
    if held.key != facts.key:
        return f"their key is {held.key!r}, not {facts.key!r}"
    changed = [name for name in ("dataset", "function") if getattr(held, name) != getattr(facts, name)]
    return f"code or values of the {' and the '.join(changed)} have changed"
