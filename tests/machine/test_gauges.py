"""The computer's gauges: a fake NVML library through the real nvidia-ml-py, and made-up /sys trees."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gobrrr.capture.process.gauging import Gauging
from gobrrr.errors import GobrrrError
from gobrrr.machine.gauges import counter, sampler
from gobrrr.machine.gauges.readings import BRAKE, NO_ANSWER, POWER, THERMAL, Link
from gobrrr.machine.gauges.sysfs import AmdGpu, Rapl
from gobrrr.recording.run_folder.gauges_file import Gauges, read_gauges
from gobrrr.system.processes import is_gone
from gobrrr.system.run_folder import GAUGES

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
# An H100 SXM at work, as nvidia-smi -q prints one (NVIDIA's documentation): 700 W, 1,980 MHz at most.
H100 = {
    "name": "NVIDIA H100 80GB HBM3", "busy": 87, "used": 12 * GIB, "total": 80 * GIB, "power": 412_000,
    "limit": 700_000, "default_limit": 700_000, "clock": 1_755, "most_clock": 1_980, "reasons": 0, "celsius": 61,
    "persistent": 1, "generation": 5, "width": 16, "most_generation": 5, "most_width": 16, "errors": 0,
}  # fmt: skip


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake library."""
    folder = tmp_path_factory.mktemp("nvml")
    source, made = ROOT / "tests" / "support" / "fake_nvml.c", folder / "libnvidia-ml.so.1"
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(made), str(source)], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a C compiler")
    return folder


@pytest.fixture
def board(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that the driver answers from; a sampler that is started now asks it."""
    pytest.importorskip("pynvml")
    answers = tmp_path / "answers"
    monkeypatch.setenv("FAKE_NVML", str(answers))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setattr(sampler, "is_worth_it", lambda: True)
    said(answers)
    yield answers


def said(answers: Path, *lines: str, **changes: object) -> None:
    """One board with these answers; None is one that it lacks."""
    told = [f"0.{name} {value}" for name, value in {**H100, **changes}.items() if value is not None]
    fresh = answers.with_suffix(".new")
    fresh.write_text("\n".join(["devices 1", *told, *lines, ""]))
    fresh.replace(answers)


def sampled(folder: Path, seconds: float = 1.0) -> Gauges:
    """What a sampler wrote in so many seconds."""
    with Gauging(folder):
        time.sleep(seconds)
    found = read_gauges(folder)
    assert found is not None
    return found


def test_a_device_is_described_and_read(board: Path, tmp_path: Path) -> None:
    found = sampled(tmp_path)
    [device] = found.head.devices
    assert (device.name, device.memory_bytes, device.limit_w) == (H100["name"], 80 * GIB, 700.0)
    assert (device.most_clock_mhz, device.persistent) == (1_980, True)
    first, last = found.samples[0].devices[0], found.samples[-1].devices[0]
    assert (first.busy, first.used, first.watts, first.clock_mhz, first.celsius) == (0.87, 12 * GIB, 412.0, 1_755, 61)
    assert (first.link, first.errors, first.why) == (Link(5, 16, 5, 16), 0, ())
    seconds = (found.samples[-1].t - found.samples[0].t) / 1e9
    assert last.joules is not None and first.joules is not None
    assert last.joules - first.joules == pytest.approx(412.0 * seconds, rel=0.05)


@pytest.mark.parametrize(
    ("bits", "why"),
    [(0x04, (POWER,)), (0x01, ()), (0x02, ()), (0x60, (THERMAL,)), (0x88, (BRAKE,)), (0x24, (POWER, THERMAL))],
)  # fmt: skip
def test_reasons_of_a_lower_clock_are_named(board: Path, tmp_path: Path, bits: int, why: tuple[str, ...]) -> None:
    said(board, reasons=bits)
    assert sampled(tmp_path, 0.5).samples[0].devices[0].why == why


def test_a_device_with_counters_tells_how_much_of_it_works(board: Path, tmp_path: Path) -> None:
    assert all(each.sm is None for sample in sampled(tmp_path, 0.6).samples for each in sample.devices)
    said(board, sm=43, tensor=None)
    found = [each for sample in sampled(tmp_path, 0.6).samples for each in sample.devices if each.sm is not None]
    assert found and {(each.sm, each.tensor) for each in found} == {(0.43, None)}
    said(board, sm=43, tensor=12)
    found = [each for sample in sampled(tmp_path, 0.6).samples for each in sample.devices if each.sm is not None]
    assert found and {(each.sm, each.tensor) for each in found} == {(0.43, 0.12)}


def test_memory_is_told_by_whose_it_is(board: Path, tmp_path: Path) -> None:
    with Gauging(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        said(board, f"0.process {child.pid} {5 * GIB}", f"0.process 1 {2 * GIB}")
        time.sleep(2.2)
        child.communicate(b"\n")
    found = read_gauges(tmp_path)
    assert found is not None
    held = [(each.ours, each.others) for sample in found.samples for each in sample.devices if each.ours is not None]
    assert held and set(held) == {(5 * GIB, 2 * GIB)}


def test_in_a_container_that_hides_our_processes_nobody_is_called_a_stranger(board: Path, tmp_path: Path) -> None:
    said(board, f"0.process 1 {2 * GIB}")
    assert all(each.others is None for sample in sampled(tmp_path).samples for each in sample.devices)


def test_gauges_that_a_board_lacks_are_not_there(board: Path, tmp_path: Path) -> None:
    board.write_text("devices 1\n0.busy 40\n")
    found = sampled(tmp_path, 0.5)
    [device], reading = found.head.devices, found.samples[0].devices[0]
    assert device.name == "NVIDIA device" and device.limit_w is None and device.persistent is None
    assert reading.busy == 0.4 and (reading.watts, reading.joules, reading.used, reading.link) == (None,) * 4


def test_a_driver_that_hangs_costs_nobody_else_and_what_it_said_is_kept(board: Path, tmp_path: Path) -> None:
    with Gauging(tmp_path):
        time.sleep(0.8)
        said(board, "hang 1")
        time.sleep(0.3)
    found = read_gauges(tmp_path)
    assert found is not None and found.samples


def test_energy_is_asked_for_beside_and_a_driver_that_hangs_is_given_up(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counter.opened()
    said(board, f"0.process {os.getpid()} {GIB}")
    before = asked.look({os.getpid()})
    assert before.devices[0].ours == GIB
    time.sleep(0.5)
    after = asked.look()
    spent = asked.joules(before, after)
    own = ((after.cpu_joules or 0.0) - (before.cpu_joules or 0.0)) + 412 * (after.t - before.t) / 1e9
    assert spent == pytest.approx(own, rel=0.05)
    monkeypatch.setattr(counter, "PATIENCE_S", 0.3)
    said(board, "hang 1")
    with pytest.raises(GobrrrError, match="the driver gives no answer"):
        asked.look()
    with pytest.raises(GobrrrError, match="the driver gives no answer"):
        asked.look()


def test_a_driver_that_hangs_from_the_start_is_said_to_give_no_answer(board: Path, tmp_path: Path) -> None:
    said(board, "hang 1")
    board.write_text("hang 1\n" + board.read_text())
    found = sampled(tmp_path, 0.5)
    assert not found.samples and found.head.why_none == NO_ANSWER


def test_a_process_that_its_parent_left_behind_stays_the_programs(tmp_path: Path) -> None:
    middle = "import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-c', 'input()'], " \
             "stdin=0).pid, flush=True); time.sleep(1.5)"  # fmt: skip
    read, write = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", middle], stdin=read, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    left = int(child.stdout.readline())

    class Asked:
        ours: frozenset[int] = frozenset()

        def devices(self) -> tuple[()]:
            return ()

        def read(self, ours: frozenset[int] | None) -> tuple[()]:
            self.ours = ours or self.ours
            return ()

    driver = Asked()
    flow = sampler.samples([driver], Rapl(Path("/nowhere")), os.getpid())  # type: ignore[list-item]
    next(flow)
    assert left in driver.ours
    child.wait()
    for _ in range(12):
        next(flow)
    assert left in driver.ours
    os.close(write)
    os.close(read)


def test_a_board_that_is_lost_leaves_the_others(board: Path, tmp_path: Path) -> None:
    lines = [f"1.{name} {value}" for name, value in H100.items()]
    board.write_text("\n".join(["devices 2", "0.lost 1", *lines, ""]))
    found = sampled(tmp_path, 0.6)
    assert [each.name for each in found.head.devices] == [H100["name"]] and found.samples[0].devices[0].busy == 0.87


@pytest.mark.parametrize("broken", ["no library", "no driver"])
def test_why_nothing_is_measured_is_said(
    board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    if broken == "no library":
        monkeypatch.delenv("LD_LIBRARY_PATH")
    else:
        board.unlink()
    found = sampled(tmp_path, 0.7)
    assert not found.head.devices and found.head.why_none.startswith("NVML: ")


def test_what_the_driver_keeps_for_itself_is_in_use_by_nobody(board: Path, tmp_path: Path) -> None:
    said(board, used=1_000, used_v2=400)
    assert sampled(tmp_path, 0.5).samples[0].devices[0].used == 400


def test_memory_of_a_process_that_is_not_told_is_nobodys(board: Path, tmp_path: Path) -> None:
    with Gauging(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        said(board, f"0.process {child.pid} {2**64 - 1}")
        time.sleep(1.5)
        child.communicate(b"\n")
    found = read_gauges(tmp_path)
    assert found is not None and all(each.ours is None for sample in found.samples for each in sample.devices)


def test_where_there_are_no_gauges_no_process_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "is_worth_it", lambda: False)
    with Gauging(tmp_path):
        pass
    assert read_gauges(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b'{"devices": []}\n{"t": ' + b"9" * 400 + b"}\n",
        b"",
        b"{}",
        b'{"devices": 3}',
        b"[1]\n{}\n",
        b"\xff\n",
        b'{"devices": []}\n{"t": "x"}\n',
    ],
)
def test_a_strange_file_is_no_gauges(tmp_path: Path, content: bytes) -> None:
    (tmp_path / GAUGES).write_bytes(content)
    found = read_gauges(tmp_path)
    assert found is None or found.samples == ()


def test_samples_that_are_torn_or_go_back_in_time_are_left_out(tmp_path: Path) -> None:
    (tmp_path / GAUGES).write_bytes(
        b'{"devices":[{"name":"x"}]}\n{"t":5,"devices":[{}]}\n{"t":4,"devices":[{}]}\n{"t":6,"devices":[]}\n{"t":7,"dev'
    )
    found = read_gauges(tmp_path)
    assert found is not None and [sample.t for sample in found.samples] == [5]


class TestSysfs:
    def tree(self, root: Path, **files: str) -> Path:
        device = root / "class" / "drm" / "card1" / "device"
        monitor = device / "hwmon" / "hwmon4"
        monitor.mkdir(parents=True)
        told = {
            "gpu_busy_percent": "64", "mem_info_vram_used": str(3 * GIB), "mem_info_vram_total": str(64 * GIB),
            "product_name": "AMD Instinct MI210", "current_link_speed": "16.0 GT/s PCIe", "current_link_width": "8",
            "max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16",
        }  # fmt: skip
        for name, text in told.items():
            (device / name).write_text(text + "\n")
        known = {
            "power1_average": "210000000",
            "power1_cap": "300000000",
            "freq1_input": "1700000000",
            "temp1_input": "52000",
        }
        for name, text in {**known, **files}.items():
            (monitor / name).write_text(text + "\n")
        return root

    def test_amdgpu_is_read(self, tmp_path: Path) -> None:
        found = AmdGpu(self.tree(tmp_path))
        [device], [reading] = found.devices(), found.read(None)
        assert (device.name, device.memory_bytes, device.limit_w) == ("AMD Instinct MI210", 64 * GIB, 300.0)
        assert (reading.busy, reading.used, reading.watts, reading.clock_mhz) == (0.64, 3 * GIB, 210.0, 1_700)
        assert (reading.celsius, reading.link, reading.why) == (52, Link(4, 8, 4, 16), ())

    def test_at_its_limit_it_is_capped(self, tmp_path: Path) -> None:
        assert AmdGpu(self.tree(tmp_path, power1_average="298000000")).read(None)[0].why == (POWER,)

    def test_rapl_adds_up_over_packages_and_over_a_counter_that_begins_anew(self, tmp_path: Path) -> None:
        zones = [tmp_path / "class" / "powercap" / f"intel-rapl:{i}" for i in (0, 1)]
        psys = zones[0].with_name("intel-rapl:2")
        for zone in (*zones, zones[0].with_name("intel-rapl:0:0"), psys):  # a part of the first, and the whole board
            zone.mkdir(parents=True)
            (zone / "energy_uj").write_text("9000000")
            (zone / "max_energy_range_uj").write_text("10000000")
        (psys / "name").write_text("psys\n")
        rapl = Rapl(tmp_path)
        (psys / "energy_uj").write_text("9900000")
        (zones[0].with_name("intel-rapl:0:0") / "energy_uj").write_text("9900000")
        (zones[0] / "energy_uj").write_text("9500000")
        (zones[1] / "energy_uj").write_text("500000")
        assert rapl.joules() == pytest.approx(0.5 + 1.5)

    def test_what_may_not_be_read_is_not_there(self, tmp_path: Path) -> None:
        assert not Rapl(tmp_path) and Rapl(tmp_path).joules() is None and AmdGpu(tmp_path).devices() == ()


def test_the_time_between_samples_doubles_in_long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(sampler, "MOST", 3)
    flow = sampler.samples([], Rapl(Path("/nowhere")), os.getpid())
    for _ in range(8):
        next(flow)
    assert slept == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.2, 0.4, 0.4])


def test_a_process_and_all_that_descend_from_it_are_its_family(tmp_path: Path) -> None:
    for pid, parent in ((1, 0), (10, 1), (11, 10), (12, 11), (20, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 0 0")
    (tmp_path / "99").mkdir()  # it has just ended
    assert sampler.family(10, str(tmp_path)) == {10, 11, 12}


def test_errors_are_those_that_nobody_could_correct_and_clocks_those_of_the_sms(board: Path, tmp_path: Path) -> None:
    said(board, errors=3, other_errors=70_000, other_clock=2_619)
    found = sampled(tmp_path, 0.6)
    assert {each.errors for sample in found.samples for each in sample.devices} - {None} == {3}
    assert found.head.devices[0].most_clock_mhz == 1_980 and found.samples[0].devices[0].clock_mhz == 1_755


def test_a_process_that_the_program_starts_later_is_its_own(board: Path, tmp_path: Path) -> None:
    with Gauging(tmp_path):
        time.sleep(1.2)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        said(board, f"0.process {child.pid} {5 * GIB}")
        time.sleep(2.2)
        child.communicate(b"\n")
    found = read_gauges(tmp_path)
    assert found is not None and 5 * GIB in {each.ours for sample in found.samples for each in sample.devices}


def test_the_programs_folder_is_not_looked_into_for_modules(
    board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert sampled(tmp_path, 0.6).samples


def test_a_sampler_ends_with_the_process_that_started_it(board: Path, tmp_path: Path) -> None:
    start = f"""
from gobrrr.machine.gauges import sampler
sampler.is_worth_it = lambda: True
from gobrrr.capture.process.gauging import Gauging
import os, pathlib, time
with Gauging(pathlib.Path({str(tmp_path)!r})) as made:
    print(made._process.pid, flush=True)
    time.sleep(0.7)
    os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=60)
    until = time.monotonic() + 5
    while not is_gone(int(done.stdout)) and time.monotonic() < until:
        time.sleep(0.05)
    assert is_gone(int(done.stdout))


def test_the_file_is_the_owners_alone(board: Path, tmp_path: Path) -> None:
    sampled(tmp_path, 0.5)
    assert (tmp_path / GAUGES).stat().st_mode & 0o777 == 0o600
    assert msgspec.json.decode((tmp_path / GAUGES).read_bytes().splitlines()[0])["devices"]
