"""Data sheets: every device that is asked for, by the names that drivers report, dense and in plausible order."""

from __future__ import annotations

import pytest

from gobrrr.machine.model.peaks import PEAKS, peak_of


@pytest.mark.parametrize(
    ("name", "fp16", "gigabytes"),
    [
        ("Tesla V100-SXM2-16GB", 125, 900),
        ("Tesla V100-PCIE-32GB", 112, 900),
        ("Tesla T4", 65, 320),
        ("NVIDIA A100-SXM4-40GB", 312, 1555),
        ("NVIDIA A100-PCIE-40GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100 80GB PCIe", 312, 1935),
        ("NVIDIA A10", 125, 600),
        ("NVIDIA L4", 121, 300),
        ("NVIDIA L40S", 362.05, 864),
        ("NVIDIA GeForce RTX 3090", 71, 936),
        ("NVIDIA GeForce RTX 4090", 165.2, 1008),
        ("NVIDIA GeForce RTX 4080", 97.5, 716.8),
        ("NVIDIA GeForce RTX 4060", 30.2, 272),
        ("NVIDIA GeForce RTX 2080 Ti", 53.8, 616),
        ("NVIDIA H800", 989.4, 3350),
        ("NVIDIA GH200 480GB", 989.4, 4000),
        ("AMD Instinct MI210", 181, 1638),
        ("NVIDIA H100 80GB HBM3", 989.4, 3350),
        ("NVIDIA H100 PCIe", 756, 2000),
        ("NVIDIA H100 NVL", 835.5, 3900),
        ("NVIDIA H200", 989.4, 4800),
        ("NVIDIA B200", 2250, 8000),
        ("NVIDIA GB200", 2500, 8000),
        ("AMD Instinct MI250X", 191.5, 1638),
        ("AMD Instinct MI250X / MI250", 181.05, 1638),
        ("AMD Instinct MI250X/MI250", 181.05, 1638),
        ("AMD Instinct MI300X", 1307.4, 5300),
        ("AMD Instinct MI300X OAM", 1307.4, 5300),
        ("AMD Instinct MI325X", 1307.4, 6000),
        ("AMD Instinct MI350X", 2306.9, 8000),
        ("AMD Instinct MI355X", 2516.6, 8000),
    ],
)
def test_found_by_the_reported_name(name: str, fp16: float, gigabytes: float) -> None:
    peak = peak_of(name)
    assert peak is not None
    assert (peak.tflops["fp16"], peak.gigabytes) == (fp16, gigabytes)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA A10G",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "AMD Radeon Graphics",
        "AMD Instinct MI300A",
        "NVIDIA B2000",
    ],
)
def test_a_name_that_is_only_alike_is_unknown(name: str) -> None:
    assert peak_of(name) is None


@pytest.mark.parametrize("peak", PEAKS, ids=lambda peak: peak.names)
def test_rows_are_dense_and_in_order(peak: object) -> None:
    assert hasattr(peak, "tflops")
    rates = peak.tflops
    assert rates["fp64"] <= rates["fp32"]
    assert rates["fp32"] <= rates.get("tf32", rates["fp32"]) <= rates["fp16"]
    if "fp8" in rates:  # half the bits, twice the rate: a sparse figure among dense ones would show
        assert 1.9 < rates["fp8"] / rates["fp16"] < 2.1
    if "tf32" in rates and "RTX" not in peak.names:
        assert 1.9 < rates["fp16"] / rates["tf32"] < 2.1


def test_every_row_names_its_source_and_says_what_it_is() -> None:
    for peak in PEAKS:
        assert peak.source.startswith(("NVIDIA ", "AMD "))
        assert peak.label.startswith("data sheet, not measured")
    assert len({peak.names for peak in PEAKS}) == len(PEAKS)


def test_rates_in_plain_units() -> None:
    peak = peak_of("NVIDIA H100 80GB HBM3")
    assert peak is not None
    assert peak.flop_rate("bf16") == pytest.approx(989.4e12)
    assert peak.flop_rate("fp32_medium") == peak.flop_rate("fp32")
    assert peak.flop_rate("fp4") is None
    assert peak.byte_rate == pytest.approx(3.35e12)
