"""What is measured, on machines of known speed; and once, shortly, on this one."""

from __future__ import annotations

from dataclasses import replace
from time import thread_time_ns
from typing import Any

import msgspec
import pytest

from gobrrr.machine.measure import accelerator, ceilings, gauges
from gobrrr.machine.measure.sampling import MAX_SPREAD, summarise
from gobrrr.machine.model.doubts import doubts_of
from gobrrr.machine.model.machine import Machine
from gobrrr.machine.probe.system_probe import Hardware, probe
from tests.support.fake_torch import FakeClock, FakeTorch

AMD = {"float64": 50e9, "float32": 100e9, "bfloat16": 400e9, "float16": 0.3e9, "int8": 900e9}
H100 = {"float64": 50e12, "float32": 50e12, "tf32": 400e12, "bfloat16": 700e12, "float16": 700e12, "int8": 1.4e15}
HOST = Hardware("a processor", ("avx2",), 2, (0, 1), None, 16 << 30, {"L1d": 32 << 10, "L2": 1 << 20, "L3": 32 << 20})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(gauges, "spin", lambda iterations: clock.advance(iterations * 500.0))
    return clock


def measured(torch: FakeTorch, hardware: Hardware = HOST, seconds: float = 100.0, **more: Any) -> Machine:
    found = ceilings.measure(torch, hardware, seconds, torch.clock, **more)
    return msgspec.convert({"fingerprint": "x", **found}, Machine)


@pytest.fixture
def amd(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> FakeTorch:
    """The torch of an AMD machine, its page faults counted."""
    torch = FakeTorch(clock, AMD)
    monkeypatch.setattr(gauges, "_minor_faults", lambda: torch.faults)
    return torch


class TestOneMachine:
    def test_finds_the_speeds_that_it_was_given(self, amd: FakeTorch) -> None:
        machine = measured(amd)
        for dtype, name in (("fp64", "float64"), ("fp32", "float32"), ("bf16", "bfloat16"), ("int8", "int8")):
            assert machine.matmul["1"][dtype].median == pytest.approx(AMD[name], rel=0.03), dtype
            assert machine.matmul["all"][dtype].median == pytest.approx(2 * AMD[name], rel=0.03), dtype
        assert machine.flop_rate("fp32_medium", 1) == pytest.approx(200e9, rel=0.03)
        assert machine.dispatch.median == pytest.approx(1000)
        assert machine.fresh_page.median == pytest.approx(500, rel=0.01)
        assert machine.threads == 2
        assert machine.device is None
        assert machine.doubts == ()

    def test_copies_are_those_of_the_memory_and_not_of_the_call(self, amd: FakeTorch) -> None:
        machine = measured(amd)
        for copy in machine.copy:
            assert copy.rate.median == pytest.approx(30e9 * copy.threads, rel=0.02), copy
        assert {copy.threads for copy in machine.copy} == {1, 2}
        assert sorted(copy.working_set for copy in machine.copy if copy.threads == 1) == list(gauges.COPY_SIZES)

    def test_fp16_without_hardware_is_measured_and_stays_cheap(self, amd: FakeTorch) -> None:
        machine = measured(amd)
        assert machine.matmul["1"]["fp16"].median == pytest.approx(0.3e9, rel=0.05)
        assert amd.longest_call < 0.5e9, "one call took half a second"

    @pytest.mark.parametrize("rate", [1e6, 1e7, 1e8, 1e9, 1e12, 1e14])
    def test_no_call_is_ever_long_however_slow_the_dtype(self, clock: FakeClock, rate: float) -> None:
        torch = FakeTorch(clock, {**AMD, "float16": rate})
        gauges.matmul_gauge(torch, "x", "fp16", gauges.Setting(1), clock, gauges.SIZES)
        assert torch.longest_call < 0.5e9

    def test_a_dtype_that_torch_refuses_is_absent_not_zero(self, amd: FakeTorch) -> None:
        amd.rates = {name: rate for name, rate in AMD.items() if name not in ("float16", "int8")}
        machine = measured(amd)
        assert "fp16" not in machine.matmul["1"]
        assert machine.flop_rate("int8", 2) is None

    def test_the_error_of_medium_precision_is_that_of_medium(self, amd: FakeTorch) -> None:
        machine = measured(amd)
        assert machine.fp32_error == pytest.approx(2.5e-7)
        assert machine.fp32_medium_error == pytest.approx(5.7e-7)

    def test_one_core_measures_once_and_calls_it_all(self, clock: FakeClock) -> None:
        host = Hardware("small", (), 1, (0,), None, 4 << 30)
        machine = measured(FakeTorch(clock, AMD, cores=1), host)
        assert machine.matmul["all"] == machine.matmul["1"]
        assert {copy.threads for copy in machine.copy} == {1}
        assert machine.effective_cores.median == 1

    def test_a_quota_limits_the_threads(self, clock: FakeClock) -> None:
        host = Hardware("big", (), 64, tuple(range(64)), 1.5, 64 << 30)
        torch = FakeTorch(clock, AMD, cores=64)
        assert measured(torch, host).threads == 2
        assert {threads for threads, _ in torch.settings_seen} == {1, 2}

    def test_memory_that_never_faults_costs_nothing(self, amd: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gauges, "_minor_faults", lambda: 7)
        assert measured(amd).fresh_page.median == 0


class TestNothingIsLeftBehind:
    def test_threads_precision_and_grad_are_as_before(self, amd: FakeTorch) -> None:
        amd.precision, amd.threads = "high", 2
        measured(amd)
        assert (amd.threads, amd.precision, amd.grad) == (2, "high", True)
        assert {precision for _, precision in amd.settings_seen} == {"highest", "medium"}

    def test_also_when_it_fails(self, amd: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            assert amd.threads == 1
            raise MemoryError

        monkeypatch.setattr(ceilings, "collect", fail)
        monkeypatch.setattr(ceilings, "fp32_errors", lambda torch, enter, threads: enter(gauges.Setting(1, "medium")))
        with pytest.raises(MemoryError):
            measured(amd)
        assert (amd.threads, amd.precision, amd.grad) == (2, "highest", True)


class TestTime:
    @pytest.mark.parametrize("seconds", [0.05, 0.5, 3.0])
    def test_keeps_to_it(self, amd: FakeTorch, seconds: float) -> None:
        machine = measured(amd, seconds=seconds)
        assert machine.seconds < seconds + 1.5  # what finding the sizes takes at least, and one sample

    def test_says_what_it_did_not_get_to(self, amd: FakeTorch) -> None:
        machine = measured(amd, seconds=0.05)
        assert any("The time was up before" in doubt for doubt in machine.doubts)
        assert machine.byte_rate(1 << 20, 1) > 0

    def test_tells_what_it_is_at(self, amd: FakeTorch) -> None:
        lines: list[str] = []
        measured(amd, notify=lines.append)
        assert lines == ["finding sizes", "measuring 29 ceilings in turn"]


class TestCores:
    def test_threads_that_take_turns_get_one_core(self, clock: FakeClock) -> None:
        with gauges.CoresGauge(4, clock) as gauge:
            assert gauge.sample(clock) == pytest.approx(1, rel=0.01)

    def test_threads_that_run_at_once_get_them_all(self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
        with gauges.CoresGauge(4, clock) as gauge:
            share = {1: 1.0, 4: 0.25}
            monkeypatch.setattr(
                gauges.CoresGauge, "_round", lambda self, clock, tasks, threads: int(1e6 * tasks * share[threads])
            )
            assert gauge.sample(clock) == pytest.approx(4)

    def test_luck_gives_no_more_cores_than_there_are(self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
        with gauges.CoresGauge(2, clock) as gauge:
            monkeypatch.setattr(
                gauges.CoresGauge, "_round", lambda self, clock, tasks, threads: 9 if threads == 1 else 1
            )
            assert gauge.sample(clock) == 2


class TestDevice:
    @pytest.fixture
    def machine(self, clock: FakeClock) -> Machine:
        return measured(FakeTorch(clock, AMD, device=H100))

    def test_adds_its_ceilings_to_those_of_the_processor(self, machine: Machine) -> None:
        assert machine.matmul["1"]["fp32"].median == pytest.approx(100e9, rel=0.03)
        device = machine.device
        assert device is not None
        assert (device.name, device.capability, device.memory_bytes) == ("NVIDIA H100 80GB HBM3", "9.0", 80 << 30)
        assert device.copy.median == pytest.approx(3e12, rel=0.05)
        assert device.pinned.median == pytest.approx(50e9, rel=0.02)
        assert device.pageable.median == pytest.approx(10e9, rel=0.02)

    def test_tf32_is_told_from_fp32(self, machine: Machine) -> None:
        assert machine.device is not None
        for dtype, rate in {"fp32": 50e12, "tf32": 400e12, "bf16": 700e12}.items():
            assert machine.device.matmul[dtype].median == pytest.approx(rate, rel=0.05), dtype

    def test_libraries_that_load_at_the_first_call_do_not_end_the_growth(self, clock: FakeClock) -> None:
        """On an H200 bf16 had 1.9 TFLOP/s: the first product of all took 0.1 s, so that no larger one was tried."""
        torch = FakeTorch(clock, AMD, device=H100)
        torch.loading_ns = 100e6
        device = measured(torch).device
        assert device is not None and device.matmul["bf16"].median == pytest.approx(700e12, rel=0.05)

    def test_a_launch_is_the_host_s_part_alone(self, machine: Machine) -> None:
        assert machine.device is not None
        assert machine.device.launch.median == pytest.approx(5000)  # not the 2000 of the device on top

    def test_launches_are_waited_for_outside_the_timed_part(self, clock: FakeClock) -> None:
        torch = FakeTorch(clock, AMD, device=H100)
        assert accelerator._launches(torch).sample(clock) == pytest.approx(5000)
        assert torch.queued == 0, "launches were left in the queue for the next gauge to wait for"

    def test_one_that_fails_leaves_the_processor_s(self, clock: FakeClock) -> None:
        torch = FakeTorch(clock, AMD, device=H100)

        def out_of_memory() -> tuple[int, int]:
            raise RuntimeError("CUDA out of memory")

        torch.cuda.mem_get_info = out_of_memory
        machine = measured(torch)
        assert machine.device is None
        assert machine.matmul["1"]["bf16"].count


class TestDoubts:
    def test_a_wide_spread_is_named_with_its_numbers(self) -> None:
        figure = summarise([100e9] * 6 + [30e9] * 3, "rate", "FLOP/s")
        (doubt,) = doubts_of({"matmul/all/bf16": figure}, HOST.memory_bytes)
        assert doubt == "The bf16 matrix product at all threads varied by 70.0 % (30.0 GFLOP/s to 100 GFLOP/s)."

    def test_one_just_inside_is_not(self) -> None:
        figure = {"median": 1.0, "low": 1.0 - MAX_SPREAD, "high": 1.0, "count": 9, "unit": "B/s"}
        assert doubts_of({"copy/1/65536": figure}, HOST.memory_bytes) == ()
        assert doubts_of({"copy/1/65536": {**figure, "low": 0.7}}, HOST.memory_bytes)

    def test_few_samples_are_named(self) -> None:
        (doubt,) = doubts_of({"dispatch": summarise([1.0] * 4, "cost", "ns")}, HOST.memory_bytes)
        assert doubt == "Fewer than 5 samples fitted into the time for the dispatch of a small op."

    def test_threads_that_hinder_each_other_are(self) -> None:
        figures = {
            "matmul/1/fp32": summarise([100e9] * 9, "rate", "FLOP/s"),
            "matmul/all/fp32": summarise([60e9] * 9, "rate", "FLOP/s"),
        }
        (doubt,) = doubts_of(figures, HOST.memory_bytes)
        assert "in fp32 were slower at all threads than at one" in doubt


class TestSizes:
    @pytest.mark.parametrize(
        ("memory", "cache", "largest"),
        [
            (64 << 30, 32 << 20, 256 << 20),
            (64 << 30, 200 << 20, 400 << 20),
            (64 << 30, 1 << 30, 512 << 20),
            (1 << 30, 32 << 20, 64 << 20),
            (0, 0, 1 << 20),
        ],
    )
    def test_reach_past_the_last_cache_but_not_the_memory(self, memory: int, cache: int, largest: int) -> None:
        sizes = gauges.copy_sizes(memory, cache)
        assert (min(sizes), max(sizes)) == (64 << 10, largest)


def test_on_this_machine_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(gauges, "SIZES", (32, 64, 128))
    monkeypatch.setattr(gauges, "COPY_SIZES", (1 << 16, 1 << 20))
    here = replace(probe(), caches={}, quota=1.0)  # one thread: a team of them is slow where others use the cores
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    precision = torch.get_float32_matmul_precision()
    # The one thread's own time: in a second of the clock a crowded machine may give it too little for a single sample.
    found = ceilings.measure(torch, here, seconds=1.0, clock=thread_time_ns)
    machine = msgspec.json.decode(msgspec.json.encode({"fingerprint": "x", **found}), type=Machine)
    assert machine.dispatch.count and 50 < machine.dispatch.median < 1e6
    assert machine.effective_cores.count and 0 < machine.effective_cores.median <= machine.usable_cores
    assert machine.matmul["1"]["fp32"].median > 1e8
    assert 0 < machine.fp32_error < 1e-5
    assert torch.get_num_threads() == threads
    assert torch.get_float32_matmul_precision() == precision
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
