"""Out-of-memory messages as people have posted them, read into figures. Each is named after where it was posted."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.errors import GobrrrError
from gobrrr.recording.trace_files.oom_log import in_text, kind_of, read_log, said

MIB, GIB = 1 << 20, 1 << 30
CUDA_2_1 = (  # FoundationVision/GenerateU #10; a container does not see its own process number
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacty of 14.75 "
    "GiB of which 235.06 MiB is free. Process 20398 has 14.52 GiB memory in use. Of the allocated memory 14.06 GiB is "
    "allocated by PyTorch, and 330.42 MiB is reserved by PyTorch but unallocated."
)
CUDA_2_4 = (  # antgroup/echomimic_v2 #115
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.22 GiB. GPU 0 has a total capacity of 15.69 GiB "
    "of which 3.71 GiB is free. Including non-PyTorch memory, this process has 11.14 GiB memory in use. Of the "
    "allocated memory 10.14 GiB is allocated by PyTorch, and 771.43 MiB is reserved by PyTorch but unallocated."
)
CUDA_1 = (  # ckkelvinchan/BasicVSR_PlusPlus #39
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.12 GiB (GPU 0; 15.77 GiB total capacity; "
    "13.52 GiB already allocated; 1.05 GiB free; 13.52 GiB reserved in total by PyTorch)"
)
CUDA_0_4 = (  # pytorch #16417
    "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 1; 10.92 GiB total capacity; 8.57 MiB already "
    "allocated; 9.28 GiB free; 4.68 MiB cached)"
)
MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 16.99 GB, other allocations: 1.11 GB, max allowed: 18.13 "
    "GB). Tried to allocate 563.62 MB on private pool."
)
CPU = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate 268435456 bytes. Error code 12 (Cannot allocate memory)"
)
NUMPY = "numpy.core._exceptions.MemoryError: Unable to allocate 7.45 GiB for an array with shape (1000, 1000000)"
KERNEL = (
    "[ 9.1] Out of memory: Killed process 12 (python) total-vm:2048kB, anon-rss:1024kB, file-rss:4kB, shmem-rss:0kB"
)


@pytest.mark.parametrize(
    ("text", "kind", "asked"),
    [
        (CUDA_2_1, "device", 496 * MIB),
        (CUDA_2_4, "device", round(4.22 * GIB)),
        (CUDA_1, "device", round(1.12 * GIB)),
        (CUDA_0_4, "device", round(12.5 * MIB)),
        (MPS, "device", round(563.62 * MIB)),
        (CPU, "cpu", 268435456),
        (NUMPY, "numpy", round(7.45 * GIB)),
        (NUMPY.replace("7.45 GiB", "192. KiB"), "numpy", 192 << 10),
        (KERNEL, "killed", None),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "device", None),
        ("RuntimeError: DataLoader worker (pid 19597) is killed by signal: Killed. ", "worker", None),
        (
            "RuntimeError: DataLoader worker (pid(s) 3, 4) is killed by signal: Bus error. It is possible",
            "worker",
            None,
        ),
        ("RuntimeError: unable to mmap 4096 bytes from file <model.bin>: Cannot allocate memory (12)", "cpu", 4096),
    ],
)
def test_each_form_says_whose_memory_and_how_much_was_asked(text: str, kind: str, asked: int | None) -> None:
    found = said(text)
    assert (found.kind, found.asked) == (kind, asked)


def test_what_merely_speaks_of_memory_is_no_failure() -> None:
    assert not kind_of("INFO memory usage 93 %, allocated 3 GiB")
    assert not kind_of("warning: the worker was killed by the user")


def test_figures_of_a_device_are_read_in_all_forms() -> None:
    device = said(CUDA_2_4).device
    assert device is not None
    assert (device.total, device.free) == (round(15.69 * GIB), round(3.71 * GIB))
    assert (device.allocated, device.in_process) == (round(10.14 * GIB), round(11.14 * GIB))
    assert device.reserved == round(10.14 * GIB) + round(771.43 * MIB)
    older = said(CUDA_0_4).device
    assert older is not None
    assert (older.number, older.reserved, older.free) == (1, round(4.68 * MIB), round(9.28 * GIB))


def test_a_process_that_must_be_itself_is_no_other() -> None:
    device = said(CUDA_2_1).device
    assert device is not None
    assert (device.in_process, device.others) == (round(14.52 * GIB), None)
    two = CUDA_2_1.replace("Process 20398 has 14.52 GiB", "Process 3 has 0.40 GiB")
    device = said(two).device
    assert device is not None
    assert (device.in_process, device.others) == (None, round(0.40 * GIB))


def test_the_kernels_line_holds_kib() -> None:
    found = said(KERNEL)
    assert (found.process.virtual, found.process.resident) == (2 * MIB, (1024 + 4) * 1024)


TRACEBACK = f"""epoch 3
Traceback (most recent call last):
  File "/home/someone/train.py", line 88, in <module>
    main()
  File "/home/someone/train.py", line 61, in main
    loss.backward()
  File "/opt/conda/lib/python3.10/site-packages/torch/_tensor.py", line 522, in backward
    torch.autograd.backward(
{CUDA_2_4}
"""


def test_a_log_gives_the_users_lines_and_the_phase(tmp_path: Path) -> None:
    log = tmp_path / "slurm-1.out"
    log.write_text('Traceback (most recent call last):\n  File "/a/b.py", line 1, in f\nValueError: 1\n' + TRACEBACK)
    found = read_log(log)
    assert [(line.file, line.line) for line in found.lines] == [
        ("/home/someone/train.py", 61),
        ("/home/someone/train.py", 88),
    ]
    assert (found.phase, found.steps) == ("backward", None)


def test_a_log_without_such_a_message_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GobrrrError, match="no out-of-memory message"):
        in_text("all is well\n", "train.log")
    with pytest.raises(GobrrrError, match="cannot read"):
        read_log(tmp_path / "none.log")
    (tmp_path / "bytes.log").write_bytes(b"\xff\x00" * 1000)
    with pytest.raises(GobrrrError, match="no out-of-memory message"):
        read_log(tmp_path / "bytes.log")
