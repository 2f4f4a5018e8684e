"""How much of the device's memory torch has handed out: asked once a second, never of one not in use."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from gobrrr.capture.devicememory import Device, most
from gobrrr.recording import marks


class Cuda(SimpleNamespace):
    """What of torch.cuda is asked."""

    used, asked, broken = False, 0, False

    def is_initialized(self) -> bool:
        return self.used

    def memory_allocated(self) -> int:
        self.asked += 1
        if self.broken:
            raise RuntimeError("this allocator keeps no statistics")
        return 1 << 20


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    torch, found = ModuleType("torch"), Cuda()
    torch.cuda = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


def test_a_program_that_does_not_use_the_device_is_not_asked(cuda: Cuda) -> None:
    assert Device().marks(5) == [] and cuda.asked == 0


def test_it_is_asked_once_a_second(cuda: Cuda) -> None:
    cuda.used, device = True, Device(every_ns=10)
    assert [device.marks(now) for now in (0, 5, 9, 10, 19, 25)] == [
        [(marks.DEVICE, 1 << 20)], [], [], [(marks.DEVICE, 1 << 20)], [], [(marks.DEVICE, 1 << 20)],
    ]  # fmt: skip


def test_an_allocator_that_does_not_tell_is_asked_no_more(cuda: Cuda) -> None:
    cuda.used = cuda.broken = True
    device = Device(every_ns=10)
    assert [device.marks(now) for now in (0, 20, 40)] == [[], [], []] and cuda.asked == 1


def test_a_process_without_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert Device().marks(0) == []


def test_what_was_most_is_asked_of_a_device_in_use(cuda: Cuda) -> None:
    cuda.max_memory_allocated, cuda.max_memory_reserved = lambda: 3 << 20, lambda: 4 << 20
    cuda.current_device, cuda.get_device_properties = lambda: 0, lambda index: SimpleNamespace(total_memory=80 << 30)
    assert most() == {}
    cuda.used = True
    assert most() == {
        "device_peak_bytes": 3 << 20, "device_reserved_bytes": 4 << 20, "device_capacity_bytes": 80 << 30,
    }  # fmt: skip
    del cuda.max_memory_reserved
    assert most() == {}, "an allocator that keeps no statistics"
