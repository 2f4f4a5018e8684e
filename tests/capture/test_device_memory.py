"""How much of the device's memory torch has handed out: asked once a second, never of one not in use."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gobrrr.capture.session import records
from gobrrr.capture.steps.device_memory import Device, in_use, most, name
from gobrrr.recording.model import event_kinds
from gobrrr.recording.run_folder.run import Start


class Cuda(SimpleNamespace):
    """What of torch.cuda is asked."""

    used, asked, broken, contexts = False, 0, False, (0,)

    def is_initialized(self) -> bool:
        return self.used

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 3

    def memory_allocated(self, number: int) -> int:
        assert number in self.contexts, "to ask another begins it"
        self.asked += 1
        if self.broken:
            raise RuntimeError("this allocator keeps no statistics")
        return 1 << 20


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    torch, found = ModuleType("torch"), Cuda()
    torch.cuda = found  # type: ignore[attr-defined]
    torch._C = SimpleNamespace(_cuda_hasPrimaryContext=lambda n: n in found.contexts)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


def test_a_program_that_does_not_use_the_device_is_not_asked(cuda: Cuda) -> None:
    assert Device().marks(5) == [] and cuda.asked == 0


def test_its_name_is_asked_once_the_program_has_begun_it(cuda: Cuda) -> None:
    """Watching began it, in a program that has none: a child that was forked later could not use it."""
    cuda.get_device_name = lambda: "H100" if cuda.used else pytest.fail("to ask begins it")
    cuda.is_available = lambda: pytest.fail("asks the driver, which no fork survives")
    torch = sys.modules["torch"]
    torch.get_num_threads, torch.__version__ = lambda: 2, "2.13"  # type: ignore[attr-defined]
    assert records.start()["device"] is None and name() is None
    cuda.used = True
    assert records.start()["device"] == "H100" == name()


def test_a_device_that_comes_later_is_known_by_the_facts() -> None:
    assert Start().known_by([{}, {"device": None}, {"device": "H100"}]).device == "H100"
    assert Start(device="A100").known_by([{"device": "H100"}]).device == "A100"
    assert Start().known_by([{"device": 3}]) == Start()


def test_it_is_asked_once_a_second(cuda: Cuda) -> None:
    cuda.used, device = True, Device(every_ns=10)
    assert [device.marks(now) for now in (0, 5, 9, 10, 19, 25)] == [
        [(event_kinds.DEVICE, 1 << 20)], [], [], [(event_kinds.DEVICE, 1 << 20)], [], [(event_kinds.DEVICE, 1 << 20)],
    ]  # fmt: skip


def test_an_allocator_that_does_not_tell_is_asked_no_more(cuda: Cuda) -> None:
    cuda.used = cuda.broken = True
    device = Device(every_ns=10)
    assert [device.marks(now) for now in (0, 20, 40)] == [[], [], []] and cuda.asked == 1


def test_a_process_without_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert Device().marks(0) == []


def test_what_was_most_is_told_of_the_device_that_holds_most(cuda: Cuda) -> None:
    """A program on cuda:1 leaves the current one at 0."""
    peaks = {0: 3 << 20, 1: 5 << 20}
    cuda.max_memory_allocated, cuda.max_memory_reserved = peaks.__getitem__, lambda number: peaks[number] + 1
    cuda.get_device_properties = lambda number: SimpleNamespace(total_memory=(80 + number) << 30)
    cuda.memory_stats = lambda number: {"num_ooms": number}
    assert most() == {}
    cuda.used = True
    assert most()["device_peak_bytes"] == 3 << 20
    cuda.contexts = (0, 1)
    assert most() == {
        "device_peak_bytes": 5 << 20, "device_reserved_bytes": (5 << 20) + 1, "device_capacity_bytes": 81 << 30,
        "device_failed": 1,
    }  # fmt: skip
    peaks |= {0: 0, 1: 0}
    assert most() == {}, "nobody has told it anything"
    del cuda.max_memory_allocated
    assert most() == {}, "an allocator that keeps no statistics"


def test_devices_in_use_are_those_with_a_context(cuda: Cuda) -> None:
    assert in_use() == []
    cuda.used, cuda.contexts = True, (1, 2)
    assert in_use() == [1, 2]
    del sys.modules["torch"]._C._cuda_hasPrimaryContext
    assert in_use() == [0], "the current one, where nobody says"
