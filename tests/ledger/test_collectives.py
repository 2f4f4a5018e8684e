"""Bus bandwidth against figures worked out by hand from nccl-tests' definitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.ledger.job.calls import _around, _major
from gobrrr.ledger.job.collectives import measure, transfers, within_a_host
from gobrrr.ledger.model.device import DeviceLedger, SizedCalls, Transfer
from gobrrr.ledger.model.ledger import Account
from gobrrr.machine.model.links import link_of
from gobrrr.recording.model.trace import Collective
from tests.ledger.test_device_ledger import call, kernel, op, read
from tests.support.handmade import MS, Case


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


def reduced(
    rate: float,
    name: str = "NVIDIA A100-SXM4-80GB",
    waiting: float = 0.0,
    within: bool | None = True,
    size: float = 25e6,
) -> Case:
    """30 ms of all-reduces at a rate on the bus."""
    moved, ns = 100e6, 100e6 / rate * 1e9
    sized = SizedCalls(size, calls=moved / size, ns=ns, fastest_ns=ns * (1 - waiting), bus_bytes=moved)
    known = {} if within is None else {"within_a_host": within}
    device = DeviceLedger(name, 60 * MS, 40 * MS, 0.7, transfers=(Transfer("all-reduce", (sized,)),), **known)
    return Case(accounts=(Account("communication", 30 * MS, 0.3),), extra={"device": device})


def test_a_rate_is_told_with_its_waiting_beside_the_link_that_is_known() -> None:
    (slow,) = reduced(3e9).raised("BRR701")
    assert "reach 3.00 GB/s on the bus, 1.0 % of NVLink 3" in slow.message
    assert slow.evidence["all_reduce_bus"].value == 3e9 and slow.evidence["link"].value == 300e9
    (late,) = reduced(20e9, waiting=0.9).raised("BRR701")
    assert "later ranks" in late.message
    (unknown,) = reduced(3e9, "some device").raised("BRR701")
    assert "NVLink" not in unknown.message and "link" not in unknown.evidence
    assert not reduced(3e9, within=None).raised("BRR702"), "where nobody said so, ranks are in no one host"
    (spread,) = reduced(3e9, within=False).raised("BRR701")
    assert "(networks carry 12.5 GB/s to 50.0 GB/s)" in spread.message and "link" not in spread.evidence
    (beyond,) = reduced(400e9).raised("BRR701")
    # More than the sheet: the sizes or the ranks are not as told, and no rate of them is printed.
    assert "on the bus" not in beyond.message and "all_reduce_bus" not in beyond.evidence


def test_a_link_far_below_its_data_sheet_is_a_finding_of_its_own() -> None:
    (slow,) = reduced(3e9).raised("BRR702")
    assert "reach 3.00 GB/s on the bus at best" in slow.message and "1.0 % of NVLink 3 (300 GB/s)" in slow.message
    assert str(slow.evidence["data_sheet"].value).startswith("NVIDIA A100")
    assert "NCCL_DEBUG" in slow.advice and slow.confidence == "inferred" and slow.saving.low_ns == 0
    # 33.3 ms at 3 GB/s take 0.67 at half of the sheet; of the 33.3, 30 are shown.
    assert slow.saving.expected_ns == pytest.approx((1e8 / 3 - 1e8 / 150) * 0.9, rel=1e-3)
    assert slow.saving.ceiling_ns <= 30 * MS


@pytest.mark.parametrize(
    "case",
    [
        reduced(40e9),  # 13 % of the sheet
        reduced(20e9, waiting=0.9),  # 200 GB/s at their fastest
        reduced(3e9, "some device"),
        reduced(3e9, within=False),  # a network may carry it
        reduced(3e9, size=1e6),  # too small for a link to bind
        reduced(4e9, "NVIDIA L40S"),  # of PCIe's 32
    ],
)
def test_where_the_link_is_reached_unknown_or_not_asked_nothing_is_said_of_it(case: Case) -> None:
    assert not case.raised("BRR702")


@pytest.mark.parametrize(
    ("name", "link", "rate"),
    [
        ("Tesla V100-SXM2-32GB", "NVLink 2", 150e9), ("NVIDIA A100-PG509-200", "NVLink 3", 300e9),
        ("NVIDIA A100-PCIE-40GB", "PCIe 4.0", 32e9), ("NVIDIA H100 80GB HBM3", "NVLink 4", 450e9),
        ("NVIDIA H100 PCIe", "PCIe 5.0", 64e9), ("NVIDIA B200", "NVLink 5", 900e9), ("Tesla T4", "PCIe 3.0", 16e9),
        ("AMD Instinct MI300X VF", "Infinity Fabric", 448e9),
    ],
)  # fmt: skip
def test_links_of_data_sheets(name: str, link: str, rate: float) -> None:
    found = link_of(name)
    assert found is not None and (found.name, found.rate) == (link, rate) and found.source


def test_a_bridge_carries_more_than_a_cards_slot() -> None:
    (card,) = reduced(150e9, "NVIDIA H100 NVL").raised("BRR701")
    assert "reach 150 GB/s" in card.message and "PCIe" not in card.message
    (none,) = reduced(150e9, "NVIDIA L40S").raised("BRR701")
    assert "GB/s" not in none.message


@pytest.mark.parametrize(
    ("world", "rank", "device", "devices", "known"),
    [(2, 0, 0, 8, True), (8, 3, 3, 8, True), (16, 3, 3, 8, False), (2, 1, 0, 8, False), (8, 0, 0, 1, False)],
)
def test_all_ranks_are_in_one_host_where_it_has_devices_for_all_and_this_ones_number_is_its_rank(
    world: int, rank: int, device: int, devices: int, known: bool, tmp_path: Path
) -> None:
    call = collective(0, 100, 250_000)
    call["args"]["device"] = device
    trace = read(tmp_path, call)
    there = replace(
        trace.properties, devices=({"name": "x"},) * devices, distributed={"rank": rank, "world_size": world}
    )
    assert within_a_host(replace(trace, properties=there), trace.kernels) is known


def test_a_call_is_of_the_collective_that_was_open_when_it_was_launched(tmp_path: Path) -> None:
    trace = read(
        tmp_path, op("c10d::allreduce_", 0, 10), call("cudaLaunchKernel", 5, 2, 1),
        call("cudaLaunchKernel", 50, 2, 2), op("c10d::broadcast_", 80, 10),
    )  # fmt: skip
    assert list(_around(trace, np.array([0, 1, -1]))) == ["c10d::allreduce_", "", ""]


def test_without_steps_and_numbers_all_calls_are_of_one(tmp_path: Path) -> None:
    trace = read(tmp_path, call("cudaLaunchKernel", 5, 2, 1), kernel("ncclDevKernel_AllReduce", 10, 20))
    assert _major(trace, trace.kernels, np.array([0]), np.array([5000])).tolist() == [0]
    step = op("ProfilerStep#7", 4, 90, "user_annotation")
    trace = read(tmp_path, step, call("cudaLaunchKernel", 5, 2, 1), kernel("ncclDevKernel_AllReduce", 10, 20))
    assert _major(trace, trace.kernels, np.array([0]), np.array([5000])).tolist() == [7]
    assert _major(trace, trace.kernels, np.array([-1]), np.array([5000])).tolist() == [0], "its launch is not known"
