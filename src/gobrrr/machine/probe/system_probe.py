"""Ask the system about this computer: no torch, no third-party package, and None where it says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

# The instruction sets that decide which matrix kernels run, by their name in /proc/cpuinfo.
ISA = (
    *("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimdhp", "asimddp", "fphp", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm", "sme"),
)
_UNLIMITED = 1 << 60  # cgroup v1 writes a huge number for "no limit"


@dataclass(frozen=True)
class Hardware:
    """Facts about the host. Bytes, MHz and CPUs; None means that the system does not tell."""

    cpu: str
    isa: tuple[str, ...]
    logical_cores: int
    affinity: tuple[int, ...] | None
    """The CPUs on which this process may run."""
    quota: float | None
    """CPUs' worth of time that the cgroup grants, v1 or v2."""
    memory_bytes: int
    """The cgroup's limit, or all of the host's memory."""
    caches: dict[str, int] = field(default_factory=dict)
    """Bytes of L1d, L2, L3, each as one core sees it."""
    max_mhz: float | None = None
    governor: str | None = None
    accelerators: tuple[str, ...] = ()
    """Names that the drivers publish without CUDA or ROCm being started."""

    @property
    def usable_cores(self) -> int:
        """CPUs that this process can keep busy at most: the affinity, cut by the quota rounded up."""
        return granted(len(self.affinity) if self.affinity else self.logical_cores, self.quota)


def usable_cores(root: Path = Path("/")) -> int:
    """As Hardware.usable_cores, without reading the rest."""
    return granted(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, _quota(root)
    )


def granted(cores: int, quota: float | None) -> int:
    """So many CPUs, cut by the quota rounded up."""
    return max(1, min(cores, -int(-quota // 1))) if quota else cores


def probe(root: Path = Path("/")) -> Hardware:
    """Read the facts. `root` is where /proc and /sys are looked for."""
    info = _cpuinfo(root)
    flags = set((info.get("flags") or info.get("Features") or "").split())
    freq = root / "sys/devices/system/cpu/cpu0/cpufreq"
    khz = _number(freq / "cpuinfo_max_freq")
    return Hardware(
        cpu=_cpu_name(info),
        isa=tuple(name for name in ISA if name in flags) or _mac_isa(),
        logical_cores=os.cpu_count() or 1,
        affinity=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None,
        quota=_quota(root),
        memory_bytes=memory_limit(root) or 0,
        caches=_caches(root),
        max_mhz=khz / 1000 if khz else None,
        governor=_text(freq / "scaling_governor"),
        accelerators=_accelerators(root),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    return _integer(_text(path))


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's block of /proc/cpuinfo."""
    facts: dict[str, str] = {}
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            facts.setdefault(key.strip(), value.strip())
    return facts


def _cpu_name(info: dict[str, str]) -> str:
    said = info.get("model name") or _sysctl("machdep.cpu.brand_string")
    if said:
        return said
    parts = [info[key] for key in ("CPU implementer", "CPU part") if key in info]
    return " ".join([platform.machine(), *parts]) if parts else platform.processor() or platform.machine() or "unknown"


def _sysctl(name: str) -> str | None:
    """A macOS kernel fact; None elsewhere."""
    if platform.system() != "Darwin":
        return None
    try:
        done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _mac_isa() -> tuple[str, ...]:
    names = {"BF16": "bf16", "FP16": "fphp", "I8MM": "i8mm", "DotProd": "asimddp", "SME": "sme"}
    return tuple(flag for name, flag in names.items() if _sysctl(f"hw.optional.arm.FEAT_{name}") == "1")


def _cgroups(root: Path) -> list[Path]:
    """Every cgroup folder that may hold a limit of this process: its own ones, and each above it."""
    mount = root / "sys/fs/cgroup"
    found: list[Path] = []
    for line in (_text(root / "proc/self/cgroup") or "0::/").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        bases = [mount / name for name in controllers.split(",") if name] or [mount, mount / "unified"]
        parts = [part for part in path.split("/") if part and part != ".."]
        for base in bases:
            found += [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return list(dict.fromkeys([*found, mount / "cpu", mount / "cpu,cpuacct", mount / "memory"]))


def _quota(root: Path) -> float | None:
    """CPUs granted by the tightest cgroup; None without a limit."""
    grants: list[float] = []
    for folder in _cgroups(root):
        limit, period = (*(_text(folder / "cpu.max") or "").split(), "", "")[:2]
        ours = _integer(limit) or _number(folder / "cpu.cfs_quota_us")
        per = _integer(period) or _number(folder / "cpu.cfs_period_us")
        if ours and per and ours > 0 and per > 0:
            grants.append(ours / per)
    return min(grants, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that this process may use: the tightest cgroup's limit, or the host's memory; None where nobody tells."""
    limits = [limit for limit, _ in _memory_groups(root)]
    sizes = [size for size in (*limits, _total_memory(root)) if size and 0 < size < _UNLIMITED]
    return min(sizes, default=None)


def free_memory(root: Path = Path("/")) -> float | None:
    """Bytes that this process can still get: what the system calls available, within every cgroup's limit."""
    left = [limit - used for limit, used in _memory_groups(root) if limit < _UNLIMITED and used is not None]
    known = [size for size in (*left, _meminfo(root, "MemAvailable")) if size is not None]
    return float(min(known)) if known else None


def oom_kills(root: Path = Path("/")) -> int | None:
    """Processes that the kernel has killed for want of memory in this process's cgroups (memory.events of v2,
    memory.oom_control of v1); None where neither tells."""
    files = [folder / name for folder in _cgroups(root) for name in ("memory.events", "memory.oom_control")]
    words = [line.split() for file in files for line in (_text(file) or "").splitlines()]
    found = [int(each[1]) for each in words if len(each) == 2 and each[0] == "oom_kill" and each[1].isdigit()]
    return sum(found) if found else None


def _memory_groups(root: Path) -> list[tuple[int, int | None]]:
    """(limit, bytes in use) of every cgroup that has a limit, v2 or v1."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    found = [(_number(folder / limit), _number(folder / used)) for folder in _cgroups(root) for limit, used in names]
    return [(limit, used) for limit, used in found if limit is not None]


def _meminfo(root: Path, name: str) -> int | None:
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _total_memory(root: Path) -> int | None:
    if (said := _meminfo(root, "MemTotal")) is not None:
        return said
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _caches(root: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _text(index / "level"), _text(index / "type")
        if level and kind and kind != "Instruction":
            found[f"L{level}" + ("d" if level == "1" else "")] = _cache_bytes(_text(index / "size"))
    for name, key in {"L1d": "hw.l1dcachesize", "L2": "hw.l2cachesize", "L3": "hw.l3cachesize"}.items():
        said = None if found.get(name) else _integer(_sysctl(key))
        if said:
            found[name] = said
    return {name: size for name, size in found.items() if size}


def _cache_bytes(text: str | None) -> int:
    """'2048K' -> 2097152; 0 where it is not a size."""
    text = text or ""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return (_integer(text.rstrip("KMG")) or 0) * scale


def _accelerators(root: Path) -> tuple[str, ...]:
    """NVIDIA models and AMD compute targets, as their kernel drivers list them."""
    names = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        lines = (_text(path) or "").splitlines()
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    for path in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        lines = (_text(path) or "").splitlines()
        names += [line for line in lines if line.startswith("gfx_target_version") and not line.endswith(" 0")]
    return tuple(names)
