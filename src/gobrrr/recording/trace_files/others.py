"""Which other tool wrote a file that is not read, and what can be read instead? Told by its name, or how it begins."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from gobrrr.errors import TraceError

HEAD = 1 << 16
"""Bytes from a file's begin that are searched: such files name themselves there (in 9 real ones, within the first
1,000)."""
ASCEND = "async_npu"
"""The category of its links from the host to the device."""
NSYS = (".nsys-rep", ".qdrep")
OF_AMD = "of AMD devices gobrrr reads what torch.profiler writes: prof.export_chrome_trace(FILE)"
OF_NVIDIA = (
    "on NVIDIA devices profile with: nsys profile --trace=cuda,nvtx, then nsys export --type sqlite FILE.nsys-rep"
)


class _Other(NamedTuple):
    endings: tuple[str, ...]
    begins: re.Pattern[bytes] | None
    """Pattern of the first bytes."""
    tables: re.Pattern[str] | None
    """A table that such a database has."""
    what: str
    hint: str
    """Hint; {} is the file's name."""


_OTHERS = (
    _Other(NSYS, re.compile(rb"NVIDIA Tegra Profiler Report"), None, "Nsight Systems' own format",
           "nsys export --type sqlite {} makes a .sqlite of it"),
    _Other((".qdstrm",), None, None, "what Nsight Systems recorded, not yet imported",
           "QdstrmImporter --input-file {} makes a .nsys-rep of it, nsys export a .sqlite of that"),
    _Other((), re.compile(rb'\A(?:\{"data":\[|data: )"\[Unknown\]"'), None,
           "an export of Nsight Systems of another type", "nsys export --type sqlite FILE.nsys-rep"),
    _Other((".ncu-rep",), None, None, "Nsight Compute's report of single kernels", OF_NVIDIA),
    _Other((".nvvp", ".nvprof"), None, re.compile("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL|StringTable"),
           "a profile of nvprof, which Nsight Systems has replaced", OF_NVIDIA),
    _Other((), None, re.compile("read_only_cuda_calls"), "a database of DLProf",
           "give the nsys_profile.sqlite beside it"),
    _Other((".xplane.pb",), re.compile(rb'"name"\s*:\s*"/(?:host|device):\w'), None,
           "a profile of XLA's profiler (JAX, TensorFlow)", OF_NVIDIA),
    _Other((".pftrace", ".perfetto-trace"), None, None, "a binary trace of Perfetto", "give the profiler's own file"),
    _Other((), re.compile(rb'\A\s*\{\s*"rocprofiler-sdk-tool"'), re.compile("rocpd_"),
           "a profile of ROCm's tools (rocprofv3, rpd)", OF_AMD),
    _Other((), re.compile(
               rb'"name"\s*:\s*"CPU (?:HIP|HSA) API"|\A[^\n]*\b(?:gpu-id|(?:Total)?DurationNs|End_Timestamp)\b'),
           re.compile("(?:KERN|OPS)$"), "a profile of rocprof", OF_AMD),
)  # fmt: skip


def named(name: str) -> TraceError | None:
    """Return what to say of a file with such a name, None where it may be a trace."""
    return next((_said(name, other) for other in _OTHERS if other.endings and name.endswith(other.endings)), None)


def mixed(source: str, categories: Iterable[str | None]) -> TraceError | None:
    """Return what to say where events of such categories were among those of torch.profiler: of Ascend's devices its
    own format has what the host did, and their work in events that say nothing of what they are."""
    hint = "gobrrr reads traces of torch.profiler and exports of Nsight Systems"
    return TraceError(f"{source} is a trace of Ascend's profiler (torch_npu)", hint) if ASCEND in categories else None


def begun(source: str, head: bytes) -> TraceError | None:
    """Return what to say of a file without events of torch.profiler that begins so, None where nobody knows it."""
    return next((_said(source, other) for other in _OTHERS if other.begins and other.begins.search(head)), None)


def holding(source: str, tables: Iterable[str]) -> TraceError | None:
    """Return what to say of a database of such tables, None where nobody knows it."""
    names = list(tables)
    found = (other for other in _OTHERS if other.tables and any(map(other.tables.match, names)))
    return next((_said(source, other) for other in found), None)


def _said(source: str, other: _Other) -> TraceError:
    return TraceError(f"{source} is {other.what}", other.hint.format(shlex.quote(re.split(r"[/\\]", source)[-1])))
