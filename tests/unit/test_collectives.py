"""Bus bandwidth against figures worked out by hand from nccl-tests' definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gobrrr.ledger.collectives import measure, transfers
from gobrrr.ledger.devicemodel import DeviceLedger, Transfer
from gobrrr.ledger.model import Account
from gobrrr.recording.trace import Collective
from tests.unit.handmade import MS, Case
from tests.unit.test_device_ledger import kernel, read


@pytest.mark.parametrize(
    ("name", "dtype", "sent", "received", "ranks", "kind", "num_bytes", "bus"),
    [
        ("allreduce", "Float", 1000, 1000, 4, "all-reduce", 4000, 6000),
        ("_allgather_base", "BFloat16", 1000, 4000, 4, "all-gather", 8000, 6000),
        ("_reduce_scatter_base", "Half", 4000, 1000, 4, "reduce-scatter", 8000, 6000),
        ("all_to_allv", "Byte", 1000, 1000, 8, "all-to-all", 1000, 875),
        ("broadcast", "Long", 1000, 1000, 4, "broadcast", 8000, 8000),
        ("reduce", "Double", 1000, 1000, 2, "reduce", 8000, 8000),
        ("send", "c10::Half", 1000, 1000, 2, "send", 2000, 2000),
    ],
)
def test_bytes_and_factor_of_every_kind(
    name: str, dtype: str, sent: int, received: int, ranks: int, kind: str, num_bytes: float, bus: float
) -> None:
    found = measure(Collective(name, dtype, sent, received, ranks))
    assert found is not None and found[0] == kind
    assert found[1:] == pytest.approx((num_bytes, bus))


@pytest.mark.parametrize(
    "call",
    [
        Collective("allreduce", "Float", 1000, 1000, 1),
        Collective("allreduce", "", 1000, 1000, 4),
        Collective("allreduce", "Float", -1, -1, 4),
        Collective("barrier", "Float", 1, 1, 4),
    ],
)
def test_what_the_file_does_not_say_has_no_rate(call: Collective) -> None:
    assert measure(call) is None


def collective(ts: float, dur: float, elements: int) -> dict[str, Any]:
    size = {"In msg nelems": elements, "Out msg nelems": elements, "Group size": 4, "dtype": "Float"}
    return kernel("ncclDevKernel_AllReduce", ts, dur, **{"Collective name": "allreduce", **size})


def test_calls_of_one_size_take_at_least_what_the_fastest_took(tmp_path: Path) -> None:
    """3 x 1 MB in 100, 100 and 400 us and 2 MB in 200: 5 MB x 1.5 in 800 us, of which 300 are more than the fastest."""
    trace = read(
        tmp_path, collective(0, 100, 250_000), collective(100, 100, 250_000), collective(200, 400, 250_000),
        collective(600, 200, 500_000),
    )  # fmt: skip
    (found,) = transfers(trace, trace.kernels, 1)
    assert (found.kind, found.calls, found.bytes, found.ns) == ("all-reduce", 4, 5e6, 800_000)
    assert found.fastest_ns == 500_000 and found.bus_rate == pytest.approx(7.5e6 / 800e-6)


def reduced(rate: float, name: str = "NVIDIA A100-SXM4-80GB", waiting: float = 0.0) -> Case:
    """30 ms of all-reduces of 100 MB at a rate on the bus."""
    ns = 100e6 / rate * 1e9
    moved = Transfer("all-reduce", 4.0, 100e6, ns, ns * (1 - waiting), 100e6)
    device = DeviceLedger(name, 60 * MS, 40 * MS, 0.7, transfers=(moved,))
    return Case(accounts=(Account("communication", 30 * MS, 0.3),), extra={"device": device})


def test_a_rate_far_below_the_link_is_told_with_what_would_settle_it() -> None:
    (slow,) = reduced(3e9).raised("BRR701")
    assert "ran at 3.00 GB/s on the bus, 1.0 % of the link" in slow.message and "NCCL_DEBUG" in slow.advice
    assert slow.evidence["all_reduce_bus"].value == 3e9 and slow.evidence["link"].value == 300e9
    (fast,) = reduced(200e9).raised("BRR701")
    assert "NCCL_DEBUG" not in fast.advice
    (late,) = reduced(20e9, waiting=0.9).raised("BRR701")
    assert "NCCL_DEBUG" not in late.advice and "later ranks" in late.message  # at its fastest 200 GB/s
    (unknown,) = reduced(3e9, "some device").raised("BRR701")
    assert "of the link" not in unknown.message and "link" not in unknown.evidence
