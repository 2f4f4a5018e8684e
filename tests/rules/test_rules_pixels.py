"""BRR401 where pictures become floats one by one, are resized in a row, or have transforms that the device could do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.ledger.model.device import DeviceLedger
from gobrrr.ledger.model.ledger import LineGroup, OpGroup
from gobrrr.machine.model.machine import DeviceCeilings, Machine
from gobrrr.recording.model.facts import InputFacts, PictureFacts, Span
from gobrrr.rules.data.loader_advice import EXPECTED_BY
from gobrrr.rules.data.pixels import MEASURED, once
from gobrrr.rules.model.finding import Finding
from tests.support.handmade import MS, Case, machine, measured, op
from tests.support.rule_lines import COLLATE, GETITEM, LOOP, line, waiting, worker

SCALES = Span("data.py", 14, "Pictures.__getitem__")
BATCH = InputFacts((8, 3, 224, 224), "float32", 8 * 3 * 224 * 224 * 4)
RESIZE = "PIL__Image__Image__resize"
BUSY: dict[str, Any] = {"process_load": 2.0}


def own(ms: float, *where: Span, **libraries: float) -> LineGroup:
    """A line of the data phase that computes by itself what no library below it does."""
    group = line(ms, *where, phase="data", **libraries)
    return replace(group, own_share=1 - max((ns for _, ns in group.libraries), default=0.0) / group.ns)


def case(*parts: LineGroup, wait: float = 40.0, inputs: tuple[InputFacts, ...] = (BATCH,), **given: Any) -> Case:
    known = PictureFacts(floats=(SCALES,), chains=((GETITEM, SCALES),))
    return waiting(wait, *parts, facts={"inputs": inputs, "pictures": known, **BUSY}, **given)


def told(made: Case) -> Finding:
    return made.raised("BRR401")[0]


def reads(ms: float, **libraries: float) -> LineGroup:
    return own(ms, GETITEM, LOOP, **libraries)


def scales(ms: float, **libraries: float) -> LineGroup:
    return own(ms, SCALES, LOOP, **libraries)


def test_floats_are_named_with_their_share_their_bytes_and_what_the_whole_batch_takes():
    made = case(reads(10), scales(30))
    found = told(made)
    takes = once(made.ledger, made.machine, BATCH.num_bytes)
    assert "75.0 % of it makes floats of picture bytes" in found.message and "data.py:14" in found.advice
    assert "in the model's first layer: " in found.advice and "the same numbers" in found.advice
    assert found.evidence["as_bytes"].value == pytest.approx(30 * MS - takes, rel=1e-3)
    assert found.evidence["batch_bytes"].value == BATCH.num_bytes


def test_the_whole_batch_takes_its_passes_at_the_ceiling_and_its_pages():
    size = BATCH.num_bytes
    ns = once(case(reads(10), scales(30)).ledger, machine(), size)
    assert ns == pytest.approx(4 * 1000 + size / 4096 * 1000 + 7.25 * size / 20.0)


def test_what_was_measured_takes_the_place_of_the_guess_from_half_of_the_loading_on():
    most, less = told(case(reads(10), scales(30))), told(case(reads(25), scales(15)))
    assert most.evidence[EXPECTED_BY].value == MEASURED
    assert most.saving.expected_ns == pytest.approx(most.evidence["as_bytes"].value)
    assert less.evidence[EXPECTED_BY].value != MEASURED and "as_bytes" in less.evidence
    assert less.saving.expected_ns == pytest.approx(0.7 * 40 * MS)


def test_at_least_their_time_alone_comes_back_less_twice_what_the_batch_takes():
    made = case(reads(10), scales(30))
    takes = once(made.ledger, made.machine, BATCH.num_bytes)
    assert told(made).saving.low_ns == pytest.approx(0.9 * 30 * MS - 2 * takes, rel=1e-6)


def test_a_step_of_two_batches_normalises_two():
    made = case(reads(10), scales(30))
    made.facts = replace(made.facts, loaders=(replace(made.facts.loaders[0], num_batches=200),))
    assert once(made.ledger, made.machine, 1e6) == pytest.approx(2 * once(case().ledger, made.machine, 1e6))


def test_what_saves_less_than_is_worth_telling_is_not_told():
    """3 % of the step beside what the whole batch takes."""
    least = 3.0 + once(case(reads(1)).ledger, machine(), BATCH.num_bytes) / MS
    assert "floats" in told(case(reads(40 - least - 0.1), scales(least + 0.1))).message
    silent = told(case(reads(40 - least + 0.1), scales(least - 0.1)))
    assert "floats" not in silent.message and "as_bytes" not in silent.evidence


def test_what_a_library_does_at_a_marked_line_is_not_the_conversion():
    found = told(case(reads(10), scales(30, PIL__ImageFile__ImageFile__load=20.0)))
    assert found.evidence["floats_share"].value == pytest.approx(0.25)


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        (replace(BATCH, dtype="uint8"),),
        (replace(BATCH, shape=(8, 3 * 224 * 224)),),
        (replace(BATCH, shape=(8, 12, 64, 64)),),
        (replace(BATCH, shape=(8, 3, 4, 224)),),
    ],
)
def test_what_is_no_picture_of_floats_is_not_told_of(inputs: tuple[InputFacts, ...]):
    assert "floats" not in told(case(reads(10), scales(30), inputs=inputs)).message


def test_batches_of_several_steps_are_not_summed():
    found = told(case(reads(10), scales(30), inputs=(BATCH, BATCH, BATCH)))
    assert found.evidence["batch_bytes"].value == BATCH.num_bytes


def test_a_null_in_every_field_is_survived():
    nothing = line(30, SCALES, LOOP, phase="data")
    assert nothing.own_share is None and "floats" not in told(case(nothing)).message
    assert "floats" not in told(case()).message
    assert told(waiting(40, line(30, LOOP, phase="data"), facts=BUSY))


NORMALIZE, FUNCTIONAL = (
    "torchvision__transforms__transforms__Normalize__forward",
    "torchvision__transforms__functional__normalize",
)


@pytest.mark.parametrize(
    ("libraries", "part"),
    [
        ({NORMALIZE: 12.0, FUNCTIONAL: 10.0}, 0.3),
        ({"torchvision__transforms__functional__to_tensor": 8.0, NORMALIZE: 12.0}, 0.5),
        ({"albumentations__augmentations__pixel__transforms__Normalize__apply": 20.0}, 0.5),
        ({"mine__Normalize__forward": 20.0}, None),
    ],
)
def test_libraries_that_convert_and_normalise_are_known(libraries: dict[str, float], part: float | None):
    found = told(case(reads(40, **libraries)))
    quantity = found.evidence.get("floats_share")
    assert (quantity.value if quantity else None) == (part if part is None else pytest.approx(part))


def test_what_a_collate_function_converts_it_converts_at_once():
    span = replace(COLLATE, line=14)
    marked = PictureFacts(floats=(span,))
    made = case(reads(25), own(15, span, LOOP), collate_span=COLLATE)
    made.facts = replace(made.facts, pictures=marked)
    assert "floats" not in told(made).message
    made.facts = replace(made.facts, loaders=(replace(made.facts.loaders[0], collate_span=None),))
    assert "floats" in told(made).message


def test_a_wait_that_is_mostly_collating_floats_is_told_of_bytes_too():
    collates = line(26, LOOP, phase="data", torch__utils__data___utils__collate__default_collate=26.0)
    (found,) = case(collates, scales(14)).raised("BRR403")
    assert "35.0 % of it makes floats of picture bytes" in found.message and "uint8" in found.advice
    takes = once(case(scales(1)).ledger, machine(), BATCH.num_bytes)
    copied = 0.75 * BATCH.num_bytes * (2 / 20.0 + 1000 / 4096)  # read, written, and fresh pages
    assert found.evidence["as_bytes"].value == pytest.approx(14 * MS + copied - takes, rel=1e-6)


def test_bytes_save_no_more_of_collating_than_it_takes():
    collates = line(0.4, LOOP, phase="data", torch__utils__data___utils__collate__default_collate=0.4)
    found = told(case(reads(9.6), scales(30), collates))
    takes = once(case(scales(1)).ledger, machine(), BATCH.num_bytes)
    assert found.evidence["as_bytes"].value == pytest.approx((30 + 0.75 * 0.4) * MS - takes, rel=1e-6)


def test_workers_are_asked_for_their_lines():
    def of(kind: str) -> Case:
        groups = (worker(60.0), replace(worker(50.0, SCALES, kind=kind), own_share=1.0))
        return case(wait=60, workers=groups, num_workers=1)

    assert "45.5 % of it makes floats" in told(of("getitem")).message
    assert "floats" not in told(of("collate")).message


CHW = (3, 224, 224)


def converts(ms: float, kind: str = "unsigned char") -> tuple[OpGroup, ...]:
    return (
        op("copy_", CHW, CHW, ms=ms / 2, phase="data", dtypes=("float", kind)),
        op("div", CHW, (), ms=ms / 2, phase="data", dtypes=("float", "Scalar")),
    )


def test_ops_of_the_main_process_tell_where_no_line_does():
    parts = (line(40, LOOP, phase="data"),)
    found = told(case(*parts, **{"accounts": ()}))
    assert "floats" not in found.message
    made = case(*parts)
    made.ops = converts(20.0)
    assert told(made).evidence["floats_share"].value == pytest.approx(0.5)
    made.facts = replace(made.facts, loaders=(replace(made.facts.loaders[0], num_workers=1),))
    assert "floats" not in told(made).message, "what the main process does beside workers is none of theirs"
    made = case(*parts)
    made.ops = converts(20.0, kind="double")
    assert "floats" not in told(made).message
    made.ops = tuple(replace(each, phase="forward") for each in converts(20.0))
    assert "floats" not in told(made).message


def with_device(made: Case, idle: float = 60.0, **copies: float) -> Case:
    device = DeviceCeilings(
        "hand", 1 << 34, {}, measured(1e12, "B/s"), measured(5000, "ns"), measured(2e10, "B/s"), measured(1e10, "B/s")
    )
    made.machine = replace(made.machine, device=device)
    seen = DeviceLedger("hand", (100 - idle) * MS, idle * MS, 0.5, (("data wait", idle * MS),))
    back = ("Memcpy DtoH", 1, 1.0 * BATCH.num_bytes, 9 * MS)
    there = ("Memcpy HtoD", 1, 1.0 * BATCH.num_bytes, copies.get("ms", 0) * MS)
    made.extra["device"] = replace(seen, copies=(there, back))
    return made


def test_with_a_device_it_is_done_there_and_the_copy_shrinks():
    found = told(with_device(case(reads(10), scales(30)), ms=4.0))
    assert "on the device" in found.advice
    assert found.evidence["copied_to_device"].value == pytest.approx(3 * MS)


def chained(first: float, second: float) -> Case:
    parts = (own(20, GETITEM, LOOP, **{RESIZE: first}), own(20, SCALES, LOOP, **{RESIZE: second}))
    return case(*(replace(part, own_share=0.0) for part in parts), inputs=())


def test_a_chain_of_resizes_is_named_with_its_shares_and_saves_all_but_the_dearest():
    found = told(chained(16.0, 8.0))
    assert "60.0 % of it resizes a picture 2 times in a row" in found.message
    assert [found.evidence[f"resize line {n}"].value for n in (12, 14)] == [pytest.approx(0.4), pytest.approx(0.2)]
    assert "other pixels" in found.advice and found.evidence["resized_again"].value == pytest.approx(8 * MS)


@pytest.mark.parametrize("second", [0.0, 2.9])
def test_a_resize_that_saves_too_little_is_not_told(second: float):
    assert "in a row" not in told(chained(16.0, second)).message
    assert "in a row" in told(chained(16.0, 3.1)).message


def test_a_resize_without_frames_has_its_lines_own_time():
    """OpenCV's, say."""
    assert told(case(reads(30, **{RESIZE: 16.0}), scales(10), inputs=())).evidence["resize line 14"].value == 0.25


def test_of_a_chain_of_which_one_resize_was_seen_nothing_is_told():
    assert "in a row" not in told(case(replace(reads(40, **{RESIZE: 30.0}), own_share=0.0), inputs=())).message


def test_two_resizes_that_the_source_does_not_link_are_no_chain():
    made = chained(16.0, 8.0)
    made.facts = replace(made.facts, pictures=PictureFacts())
    assert "in a row" not in told(made).message


def test_resizing_transforms_of_one_compose_are_a_chain():
    kinds = {"Resize": 12.0, "RandomResizedCrop": 6.0, "RandomHorizontalFlip": 3.0}
    libraries = {f"torchvision__transforms__transforms__{kind}__forward": ms for kind, ms in kinds.items()}
    found = told(case(reads(40, **libraries), inputs=()))
    assert [found.evidence[f"resize {kind}"].value for kind in ("Resize", "RandomResizedCrop")] == [0.3, 0.15]


JITTER = "torchvision__transforms__transforms__ColorJitter__forward"


def jitters(**changes: Any) -> Case:
    libraries = changes.pop("libraries", {JITTER: 20.0})
    group = replace(worker(100.0), libraries=tuple((n.replace("__", "."), v * 2 * MS) for n, v in libraries.items()))
    made = case(wait=changes.pop("wait", 60.0), workers=(group,), num_workers=2, **changes)
    made.facts = replace(made.facts, process_load=1.0)
    return made


def test_transforms_go_to_a_device_that_idles_while_the_cores_are_busy():
    found = told(with_device(jitters()))
    assert "ColorJitter 40.0 % of the loading could be done there" in found.advice
    assert found.evidence["moved_to_device"].value > 3 * MS and found.evidence["device_idle"].value == 60 * MS


def idle_cores(made: Case) -> Case:
    made.machine = replace(made.machine, effective_cores=measured(16, "1"))
    return made


def slow_device(made: Case) -> Case:
    device = made.machine.device
    assert device is not None
    made.machine = replace(made.machine, device=replace(device, copy=measured(1e9, "B/s")))
    return made


def test_what_is_told_of_the_device_is_what_comes_back_beside_what_it_takes():
    made = with_device(jitters())
    kept = told(made)
    needs = kept.evidence["on_device"].value
    assert needs == pytest.approx(4.5 * (4 * 5000 + 7.25 * BATCH.num_bytes / 1000), rel=1e-6)
    assert "on_device" in told(with_device(jitters(), idle=needs / MS + 0.1)).evidence
    assert "on_device" not in told(with_device(jitters(), idle=needs / MS - 0.1)).evidence


@pytest.mark.parametrize(
    "made",
    [
        jitters(),
        idle_cores(with_device(jitters())),
        slow_device(with_device(jitters())),
        with_device(jitters(libraries={"torchvision__transforms__transforms__RandomResizedCrop__forward": 20.0})),
        with_device(jitters(libraries={JITTER: 2.0})),
        with_device(jitters(libraries={JITTER: 3.0}, wait=20.0)),
    ],
    ids=["no device", "idle cores", "slow device", "other transform", "too little", "of a short wait"],
)
def test_transforms_stay_where_figures_do_not_say_otherwise(made: Case):
    assert all("whole batches, in" not in found.advice for found in made.raised("BRR401"))


def test_a_run_that_does_not_use_the_device_says_nothing_of_it():
    made = with_device(jitters())
    del made.extra["device"]
    assert "whole batches, in" not in told(made).advice


def test_a_machine_without_ceilings_of_its_device_says_nothing_of_it():
    made = with_device(jitters())
    assert isinstance(made.machine, Machine)
    made.machine = replace(made.machine, device=None)
    assert "whole batches, in" not in told(made).advice
