"""How much of a wait makes pictures floats one by one or resizes them again, and how much could a device do?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gobrrr.ledger.model.ledger import Ledger, LineGroup, WorkerGroup
from gobrrr.machine.model.machine import Machine
from gobrrr.recording.model.facts import LoaderFacts, Span
from gobrrr.rules.data.library_calls import DECODED, loading_lines, transforms
from gobrrr.rules.data.loader_advice import Loading
from gobrrr.rules.data.wait_stages import HALF, SATURATED, Wait
from gobrrr.rules.model.cores import batches_per_step, cores_busy
from gobrrr.rules.model.evidence import count, ratio, size, time, worth_telling
from gobrrr.rules.model.finding import Cause, amended
from gobrrr.rules.model.lines import Functions, in_function
from gobrrr.units import PAGE, duration, share

LIBRARIES = ("torchvision.transforms.", "albumentations.", "transformers.image_")
TO_FLOATS = frozenset(
    {"ToTensor", "ToDtype", "ConvertImageDtype", "ConvertDtype", "ToFloat", "to_tensor", "convert_image_dtype",
     "to_dtype", "to_dtype_image", "to_float", "rescale"}
)  # fmt: skip
NORMALISING = frozenset({"Normalize", "normalize", "normalize_image"})
"""Classes and functions of `LIBRARIES`."""
RESIZES = Functions(
    ("PIL.Image.", "torch.nn.functional.", "torchvision.transforms.", "transformers.image_", "skimage.transform."),
    frozenset({"resize", "reduce", "thumbnail", "interpolate"}),
)
RESIZERS = frozenset(
    {"Resize", "RandomResizedCrop", "RandomResize", "RandomShortestSize", "ScaleJitter", "SmallestMaxSize",
     "LongestMaxSize", "MaxSizeTransform", "RandomScale", "BaseRandomSizedCrop", "RandomSizedCrop"}
)  # fmt: skip
"""Transforms of torchvision and albumentations that resize what they are given."""
CHANNELS, SIDE = (1, 3, 4), 8
"""Numbers of channels that a picture may have, and the least length of its sides."""
AS_BYTES = 0.75
"""Share of a batch of floats that bytes save."""
PASSES = 4
"""Passes over the batch where it is normalised once: made floats, divided by 255, less the mean, divided by the
deviation."""
SCALED = ("div", "div_", "sub", "sub_", "mul", "mul_", "add", "add_", "true_divide")


class Floats(NamedTuple):
    """Bytes that become floats sample by sample."""

    share: float
    """Share of the loading."""
    where: tuple[Span, ...]
    """The line that has most of it."""
    batch_bytes: int
    """Size of a batch of floats: as bytes it is a quarter of that."""


class Chain(NamedTuple):
    """Resizes of one picture, one after the other, with their shares of the loading."""

    links: tuple[tuple[str, float], ...]
    """(where or what, share)."""

    @property
    def again(self) -> float:
        """All but the dearest: one resize to the last size costs no more than that."""
        every = [part for _, part in self.links]
        return sum(every) - max(every)


def floats(ledger: Ledger, found: Wait) -> Floats | None:
    """By the sampled lines that convert and scale, as the source or the library's functions say, or by the profiled ops
    of the main process, whichever saw more; None where the model gets no pictures of floats."""
    batch = batch_bytes(ledger)
    if not batch:
        return None
    marked = {span.place for span in ledger.facts.pictures.floats}
    lines, everything = loading_lines(ledger, found.loader)
    costs = [(_converting(line, marked), line) for line in lines if not _collates(line, found.loader)]
    most = max(costs, key=lambda pair: pair[0], default=None)
    by_lines = sum(cost for cost, _ in costs) / everything
    by_ops = _ops_ns(ledger) / found.ns if found.ns > 0 and not found.loader.num_workers else 0.0
    where = most[1].where if most and most[0] > 0 else ()
    part = min(1.0, max(by_lines, by_ops))
    return Floats(part, where, batch) if part > 0 else None


def batch_bytes(ledger: Ledger) -> int:
    """Return the bytes of the largest batch of pictures as floats that a model got: inputs are noted in several steps,
    and never summed. 0 where there is none."""
    given = (each for each in ledger.facts.inputs if each.dtype == "float32" and len(each.shape) == 4)
    return max((each.num_bytes for each in given if _picture(each.shape[1:])), default=0)


def _picture(shape: Sequence[int]) -> bool:
    """Three dimensions, channels first or last."""
    if len(shape) != 3:
        return False
    return any(c in CHANNELS and min(sides) >= SIDE for c, sides in ((shape[0], shape[1:]), (shape[2], shape[:2])))


def _collates(line: LineGroup | WorkerGroup, loader: LoaderFacts) -> bool:
    """A line of the user's collate function: what it converts, it converts at once."""
    if isinstance(line, WorkerGroup):
        return line.kind == "collate"
    return in_function(line.where, loader.collate_span)


def _converting(line: LineGroup | WorkerGroup, marked: set[tuple[str, int]]) -> float:
    """ns of a line; what NumPy and torch compute has no frame below it. Inclusive times of one kind nest."""
    libraries = [({*name.split(".")[-2:]}, ns) for name, ns in line.libraries if name.startswith(LIBRARIES)]
    named = sum(max((ns for names, ns in libraries if names & kind), default=0.0) for kind in (TO_FLOATS, NORMALISING))
    own = line.ns * (line.own_share or 0.0) if line.where and line.where[0].place in marked else 0.0
    return min(line.ns, named + own)


def _ops_ns(ledger: Ledger) -> float:
    """ns per step of ops in the data phase that copy the bytes of single pictures to floats, and that scale those."""
    ours = [op for op in ledger.ops if op.phase == "data" and op.shapes and op.dtypes and _picture(op.shapes[0])]
    made = [op for op in ours if op.name == "aten::copy_" and op.dtypes[:2] == ("float", "unsigned char")]
    shapes = {tuple(sorted(op.shapes[0])) for op in made}
    scaled = {"aten::" + name for name in SCALED}
    scales = [op for op in ours if op.name in scaled and op.dtypes[0] in ("float", "unsigned char")]
    return sum(op.ns for op in [*made, *(op for op in scales if tuple(sorted(op.shapes[0])) in shapes)])


def chain(ledger: Ledger, loader: LoaderFacts) -> Chain | None:
    """The chain that costs most beside its dearest resize: by lines, as the source has them, or by the transforms of
    one Compose."""
    lines, everything = loading_lines(ledger, loader)
    known: dict[tuple[str, int], float] = {}
    for line in lines:
        if line.where:
            resized = max((ns for name, ns in line.libraries if RESIZES.has(name)), default=0.0)
            ns = resized or line.ns * (line.own_share or 0.0)  # OpenCV has no frames
            known[line.where[0].place] = known.get(line.where[0].place, 0.0) + ns / everything
    chains = [
        Chain(tuple((f"line {link.line}", known[link.place]) for link in links if known.get(link.place)))
        for links in ledger.facts.pictures.chains
    ]
    named = transforms(ledger, loader)
    chains.append(Chain(tuple((kind, part) for kind, part in named.items() if kind in RESIZERS)))
    return max((each for each in chains if len(each.links) > 1), key=lambda one: one.again, default=None)


def once(ledger: Ledger, machine: Machine, size: float) -> float:
    """ns per step of making batches floats and normalising them at once, where they are used: at the ceilings, every
    pass reading and writing all of it and the first one reading bytes."""
    moved = (PASSES * 2 - AS_BYTES) * size
    device = machine.device if ledger.device is not None else None
    if device is not None:
        ns = PASSES * device.launch.median + moved * 1e9 / device.copy.median
    else:
        pages = size / PAGE * machine.fresh_page.median
        ns = PASSES * machine.dispatch.median + pages + moved * 1e9 / machine.byte_rate(2.0 * size, ledger.threads)
    return batches_per_step(ledger) * ns


def saved_as_bytes(
    ledger: Ledger, machine: Machine, found: Wait, loading: Loading, seen: Floats
) -> tuple[float, float]:
    """(at least, expected) ns per step: what is spent sample by sample and what bytes are less to collate, less what
    the whole batch takes; at least what is spent alone, the batch at half of the ceilings' rate."""
    ns, computed = once(ledger, machine, seen.batch_bytes), loading.pipeline.cpu_ns
    collating = _collating(ledger, machine, found, seen.batch_bytes) / computed if computed else 0.0
    return loading.lacks(0.9 * seen.share, 2 * ns), loading.lacks(min(1.0, seen.share + collating), ns)


def _collating(ledger: Ledger, machine: Machine, found: Wait, size: float) -> float:
    """ns per step of copying three quarters of the batches at the ceiling, into fresh pages; not more than of what
    collating took: a part of that is waiting for cores, and dispatching."""
    less = AS_BYTES * size
    copied = 2 * less * 1e9 / machine.byte_rate(2.0 * size, 1) + less / PAGE * machine.fresh_page.median
    return min(batches_per_step(ledger) * copied, AS_BYTES * (found.collate_share or 0.0) * found.ns)


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
    saved = loading.lacks(min(1.0, sum(part for _, part in kinds)), needs)
    slack = ledger.device.starved_ns
    return OnDevice(kinds, needs, saved) if needs <= slack and worth_telling(ledger, saved) else None


def with_pixels(found: Cause, ledger: Ledger, seen: Pixels) -> Cause:
    """The finding, with all that was seen of them."""
    if seen.floats is not None:
        found = _with_floats(found, ledger, seen.floats, seen.floats_ns)
    if seen.chain is not None:
        found = _with_chain(found, seen.chain, seen.chain_ns)
    return found if seen.on_device is None else _with_device(found, ledger, seen.on_device)


def _with_floats(found: Cause, ledger: Ledger, made: Floats, saved_ns: float) -> Cause:
    whole = made.batch_bytes
    evidence = {"floats_share": ratio(made.share), "as_bytes": time(saved_ns), "batch_bytes": size(whole)}
    # Of the copies to the device bytes save three quarters of a batch of floats.
    copies = [(moved, ns) for kind, _, moved, ns in ledger.device.copies if "HtoD" in kind] if ledger.device else []
    moved, ns = (sum(each) for each in zip(*copies, strict=True)) if copies else (0.0, 0.0)
    copied = ns * min(1.0, whole / moved) * AS_BYTES if moved else 0.0
    place = "in the model's first layer" + (", on the device" if ledger.device is not None else "")
    line = f" at {made.where[0].file.rsplit('/', 1)[-1]}:{made.where[0].line}" if made.where else ""
    less = f"{duration(saved_ns)} less, the same numbers"
    advice = f"Hand on bytes (uint8){line} and normalise the whole batch {place}: {less}."
    decoding = found.evidence.get(DECODED)
    comes_first = decoding is None or float(decoding.value) < saved_ns
    return amended(
        found,
        message=f"; {share(made.share)} of it makes floats of picture bytes",
        **{"advice" if comes_first else "after": advice},
        evidence=evidence | ({"copied_to_device": time(copied)} if copied else {}),
    )


def _with_chain(found: Cause, links: Chain, saved_ns: float) -> Cause:
    every = sum(part for _, part in links.links)
    evidence = {f"resize {what}": ratio(part) for what, part in links.links}
    return amended(
        found,
        message=f"; {share(every)} of it resizes a picture {len(links.links)} times in a row",
        advice=f"Resize once, to the last size: at least {duration(saved_ns)} less, and other pixels.",
        evidence=evidence | {"resized_again": time(saved_ns), "resizes": count(len(links.links))},
    )


def _with_device(found: Cause, ledger: Ledger, moved: OnDevice) -> Cause:
    assert ledger.device is not None
    told = ", ".join(f"{kind} {share(part)}" for kind, part in moved.kinds)
    idle = ledger.device.starved_ns
    return amended(
        found,
        advice=f"The cores are busy and the device idles {duration(idle)} of a step. {told} of the loading could be "
        f"done there on whole batches, in {duration(moved.device_ns)} at most by its ceilings. Measure it: one draw "
        "for a batch is not one for each picture.",
        evidence={
            "moved_to_device": time(moved.saved_ns), "on_device": time(moved.device_ns), "device_idle": time(idle),
        },
    )  # fmt: skip
