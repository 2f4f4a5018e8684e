"""Messages on pictures that become floats one by one, on resizes in a row, and on transforms that a device could do;
and the saving that BRR401 may promise where that was measured."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gobrrr.ledger.model.ledger import Ledger
from gobrrr.machine.model.machine import Machine
from gobrrr.rules.data.loader_advice import Loading
from gobrrr.rules.data.pictures import DECODED, transforms
from gobrrr.rules.data.pixels import AS_BYTES, Chain, Floats, batch_bytes, chain, floats, once, saved_as_bytes
from gobrrr.rules.data.wait_stages import HALF, SATURATED, Wait
from gobrrr.rules.model.cores import cores_busy
from gobrrr.rules.model.evidence import count, ratio, size, time, worth_telling
from gobrrr.rules.model.finding import Finding
from gobrrr.units import duration, share
from gobrrr.units import size as told_size

BATCHED = frozenset(
    {"Normalize", "ColorJitter", "RandomHorizontalFlip", "RandomVerticalFlip", "HorizontalFlip", "VerticalFlip",
     "RandomGrayscale", "ToGray", "GaussianBlur", "RandomErasing", "RandomAffine", "Affine", "RandomRotation", "Rotate",
     "RandomPerspective", "Perspective", "RandomBrightnessContrast", "HueSaturationValue", "GaussNoise"}
)  # fmt: skip
"""Transforms that keep a picture's size and that torchvision's v2 or kornia have for batches of tensors."""
WRAPPED = 4.5
"""Time of a transform on a device, as a multiple of its kernels: 78 % of a flip was its wrapper (kornia, pull request
3803)."""
MEASURED = "what it takes sample by sample, less the whole batch at this machine's ceilings"


class OnDevice(NamedTuple):
    """Transforms that the device has the time for, and the cores have not."""

    kinds: tuple[tuple[str, float], ...]
    device_ns: float
    """Time of the transforms on the device, per step, taken high."""
    saved_ns: float


class Pixels(NamedTuple):
    """Measurements of the pictures of one wait. ns per step; null and 0 where it is not worth telling."""

    floats: Floats | None = None
    floats_low: float = 0.0
    floats_ns: float = 0.0
    chain: Chain | None = None
    chain_ns: float = 0.0
    on_device: OnDevice | None = None

    def saving(self, low: float, expected: float) -> tuple[float, float]:
        """Return the least and the expected saving: as measured where that is half of the loading, else the larger of
        measurement and guess."""
        most = self.floats_ns if self.by else max(expected, self.floats_ns)
        return min(most, max(low, self.floats_low)), most

    @property
    def by(self) -> str:
        """Basis of the expected saving, where it is no guess."""
        return MEASURED if self.floats is not None and self.floats.share >= HALF else ""


def pixels(ledger: Ledger, machine: Machine, found: Wait, loading: Loading) -> Pixels:
    """Return what is worth telling of the pictures: 3 % of the step each."""
    seen = Pixels(on_device=_on_device(ledger, machine, found, loading))
    if (made := floats(ledger, found)) is not None:
        low, ns = saved_as_bytes(ledger, machine, found, loading, made)
        if worth_telling(ledger, ns):
            seen = seen._replace(floats=made, floats_low=low, floats_ns=ns)
    if (links := chain(ledger, found.loader)) is not None:
        ns = loading.lacks(min(1.0, links.again))
        if worth_telling(ledger, ns):
            seen = seen._replace(chain=links, chain_ns=ns)
    return seen


def _on_device(ledger: Ledger, machine: Machine, found: Wait, loading: Loading) -> OnDevice | None:
    """Return such transforms where the cores are all busy and the device idles for longer than it would need, taken
    high."""
    busy, cores = cores_busy(ledger), machine.effective_cores.median
    if ledger.device is None or machine.device is None or busy is None or busy < SATURATED * cores:
        return None
    kinds = tuple((kind, part) for kind, part in transforms(ledger, found.loader).items() if kind in BATCHED)
    batch = batch_bytes(ledger)
    if not kinds or not batch:
        return None
    needs = len(kinds) * WRAPPED * once(ledger, machine, batch)
    saved = loading.moved(min(1.0, sum(part for _, part in kinds)), needs)
    slack = ledger.device.starved_ns
    return OnDevice(kinds, needs, saved) if needs <= slack and worth_telling(ledger, saved) else None


def with_pixels(found: Finding, ledger: Ledger, seen: Pixels) -> Finding:
    """The finding, with all that was seen of them."""
    if seen.floats is not None:
        found = _with_floats(found, ledger, seen.floats, seen.floats_ns)
    if seen.chain is not None:
        found = _with_chain(found, seen.chain, seen.chain_ns)
    return found if seen.on_device is None else _with_device(found, ledger, seen.on_device)


def _with_floats(found: Finding, ledger: Ledger, made: Floats, saved_ns: float) -> Finding:
    whole, less = made.batch_bytes, (1 - AS_BYTES) * made.batch_bytes
    evidence = {"floats_share": ratio(made.share), "as_bytes": time(saved_ns), "batch_bytes": size(whole)}
    copied = _copied_ns(ledger, whole)
    place = "in the model's first layer" + (", on the device" if ledger.device is not None else "")
    line = f" at {made.where[0].file.rsplit('/', 1)[-1]}:{made.where[0].line}" if made.where else ""
    advice = (
        f"Hand on bytes (uint8), and make floats of the whole batch and normalise it {place}: the same numbers where "
        f"the steps are the same, and {duration(saved_ns)} less."
    )
    decoding = found.evidence.get(DECODED)
    comes_first = decoding is None or float(decoding.value) < saved_ns
    return msgspec.structs.replace(
        found,
        message=f"{found.message}; {share(made.share)} of it makes bytes of pictures floats and scales them, one "
        f"picture after the other{line}, {told_size(whole)} a batch where bytes are {told_size(less)}",
        advice=f"{advice} {found.advice}" if comes_first else f"{found.advice} {advice}",
        evidence=found.evidence | evidence | ({"copied_to_device": time(copied)} if copied else {}),
    )


def _copied_ns(ledger: Ledger, batch: float) -> float:
    """Return the ns per step of copies to the device that bytes save: three quarters of a batch of floats."""
    copies = [(moved, ns) for kind, _, moved, ns in ledger.device.copies if "HtoD" in kind] if ledger.device else []
    moved, ns = (sum(each) for each in zip(*copies, strict=True)) if copies else (0.0, 0.0)
    return ns * min(1.0, batch / moved) * AS_BYTES if moved else 0.0


def _with_chain(found: Finding, links: Chain, saved_ns: float) -> Finding:
    told = (", then " if links.in_order else " and ").join(f"{what} {share(part)}" for what, part in links.links)
    evidence = {f"resize {what}": ratio(part) for what, part in links.links}
    return msgspec.structs.replace(
        found,
        message=f"{found.message}; a picture is resized {len(links.links)} times in a row ({told} of it)",
        advice=f"Resize once, to the last size: at least {duration(saved_ns)} less, and other pixels. {found.advice}",
        evidence=found.evidence | evidence | {"resized_again": time(saved_ns), "resizes": count(len(links.links))},
    )


def _with_device(found: Finding, ledger: Ledger, moved: OnDevice) -> Finding:
    assert ledger.device is not None
    told = ", ".join(f"{kind} {share(part)}" for kind, part in moved.kinds)
    idle = ledger.device.starved_ns
    return msgspec.structs.replace(
        found,
        advice=f"The cores are busy and the device idles {duration(idle)} of a step: {told} of the loading could be "
        f"done there on whole batches, in {duration(moved.device_ns)} at most by its ceilings (one draw for "
        f"a batch is not one for each picture; measure it). {found.advice}",
        evidence=found.evidence
        | {"moved_to_device": time(moved.saved_ns), "on_device": time(moved.device_ns), "device_idle": time(idle)},
    )
