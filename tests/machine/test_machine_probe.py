"""What is read off /proc and /sys, from folders made by hand: cgroups of both versions, caches, clocks, or nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gobrrr.machine.probe.fingerprint import fingerprint, is_switch
from gobrrr.machine.probe.system_probe import Hardware, probe


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CPUINFO = """processor\t: 0
model name\t: Example 9000
flags\t\t: fpu sse avx2 fma avx512_bf16 amx_bf16 amx_tile amx_int8 hypervisor

processor\t: 1
model name\t: Another
"""
MEMINFO = "MemTotal:       16384000 kB\nMemFree:  1 kB\n"


class TestProcessor:
    def test_name_and_instructions(self, tmp_path: Path) -> None:
        found = probe(tree(tmp_path, {"proc/cpuinfo": CPUINFO, "proc/meminfo": MEMINFO}))
        assert found.cpu == "Example 9000"
        assert found.isa == ("avx2", "fma", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")
        assert found.max_mhz is None
        assert found.memory_bytes == 16384000 * 1024

    def test_arm_has_no_model_name(self, tmp_path: Path) -> None:
        text = "processor : 0\nFeatures : fp asimd asimdhp bf16 i8mm sve\nCPU implementer : 0x41\nCPU part : 0xd4f\n"
        found = probe(tree(tmp_path, {"proc/cpuinfo": text}))
        assert found.cpu.endswith("0x41 0xd4f")
        assert found.isa == ("asimd", "asimdhp", "bf16", "i8mm", "sve")

    def test_clocks_and_governor(self, tmp_path: Path) -> None:
        base = "sys/devices/system/cpu/cpu0/cpufreq/"
        files = {"cpuinfo_max_freq": "4500000\n", "scaling_governor": "powersave\n"}
        found = probe(tree(tmp_path, {base + name: text for name, text in files.items()}))
        assert (found.max_mhz, found.governor) == (4500, "powersave")

    def test_caches_without_that_of_instructions(self, tmp_path: Path) -> None:
        base = "sys/devices/system/cpu/cpu0/cache/index"
        rows = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "260M")]
        files = {
            f"{base}{at}/{name}": text
            for at, row in enumerate(rows)
            for name, text in zip(("level", "type", "size"), row, strict=True)
        }
        assert probe(tree(tmp_path, files)).caches == {"L1d": 48 << 10, "L2": 2 << 20, "L3": 260 << 20}

    def test_accelerators_without_their_libraries(self, tmp_path: Path) -> None:
        files = {
            "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA H100 PCIe\nIRQ: 1\n",
            "sys/class/kfd/kfd/topology/nodes/0/properties": "gfx_target_version 0\n",
            "sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 4\ngfx_target_version 90402\n",
        }
        assert probe(tree(tmp_path, files)).accelerators == ("NVIDIA H100 PCIe", "gfx_target_version 90402")

    def test_nothing_to_read_is_not_an_error(self, tmp_path: Path) -> None:
        found = probe(tmp_path)
        assert found.logical_cores == os.cpu_count()
        assert found.memory_bytes > 0  # from sysconf
        assert (found.quota, found.max_mhz, found.governor, found.accelerators) == (None, None, None, ())

    @pytest.mark.parametrize("text", ["", "\0\0", "flags", "cpu MHz : fast\nMemTotal\n", "model name : \n" * 5])
    def test_nor_is_rubbish(self, tmp_path: Path, text: str) -> None:
        assert probe(tree(tmp_path, {"proc/cpuinfo": text, "sys/fs/cgroup/cpu.max": text})).cpu


class TestLimits:
    @pytest.mark.parametrize(
        ("files", "quota"),
        [
            ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
            ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
            ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "200000 100000"}, 2.0),
            (
                {
                    "proc/self/cgroup": "0::/a/b\n",
                    "sys/fs/cgroup/a/cpu.max": "50000 100000",
                    "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                },
                0.5,
            ),
            (
                {
                    "proc/self/cgroup": "0::/a/b\n",
                    "sys/fs/cgroup/a/cpu.max": "400000 100000",
                    "sys/fs/cgroup/a/b/cpu.max": "250000 100000",
                },
                2.5,
            ),
            (
                {
                    "proc/self/cgroup": "4:cpu,cpuacct:/box\n0::/\n",
                    "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "300000",
                    "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
                },
                3.0,
            ),
            ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
        ],
    )
    def test_quota_of_both_versions_and_of_parents(
        self, tmp_path: Path, files: dict[str, str], quota: float | None
    ) -> None:
        assert probe(tree(tmp_path, files)).quota == quota

    @pytest.mark.parametrize(
        ("files", "limit"),
        [
            ({"sys/fs/cgroup/memory.max": "1073741824\n"}, 1 << 30),
            ({"sys/fs/cgroup/memory.max": "max\n"}, 16384000 * 1024),
            (
                {
                    "proc/self/cgroup": "4:memory:/box\n",
                    "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "2147483648",
                },
                2 << 30,
            ),
            ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 16384000 * 1024),
        ],
    )
    def test_memory_is_the_tighter_of_limit_and_host(self, tmp_path: Path, files: dict[str, str], limit: int) -> None:
        assert probe(tree(tmp_path, {"proc/meminfo": MEMINFO, **files})).memory_bytes == limit

    def test_no_limit_and_no_total_is_unknown(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sysconf", lambda name: int("not told here"))
        files = {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}
        assert probe(tree(tmp_path, files)).memory_bytes == 0

    @pytest.mark.parametrize(
        ("affinity", "quota", "usable"),
        [((0, 1, 2, 3), None, 4), ((0, 1, 2, 3), 1.5, 2), ((0,), 8.0, 1), (None, None, 8), ((0, 1), 0.1, 1)],
    )
    def test_usable_cores(self, affinity: tuple[int, ...] | None, quota: float | None, usable: int) -> None:
        assert Hardware("x", (), 8, affinity, quota, 1).usable_cores == usable


class TestFingerprint:
    HOST = Hardware("x", ("avx2",), 8, (0, 1), None, 1 << 30, {"L2": 1}, 4500.0, "performance")

    @pytest.mark.parametrize(
        "change",
        [
            {"cpu": "y"},
            {"isa": ()},
            {"logical_cores": 4},
            {"affinity": (0,)},
            {"quota": 1.5},
            {"memory_bytes": 2 << 30},
            {"max_mhz": 3000.0},
            {"governor": "powersave"},
            {"accelerators": ("NVIDIA H100 PCIe",)},
        ],
    )
    def test_moves_with_what_moves_a_ceiling(self, change: dict[str, object]) -> None:
        assert fingerprint(self.HOST, "2.13.0", {}) != fingerprint(replace(self.HOST, **change), "2.13.0", {})

    def test_moves_with_torch_and_its_switches(self) -> None:
        marks = {
            fingerprint(self.HOST, version, environ)
            for version in ("2.13.0", "2.13.0+cpu")
            for environ in ({}, {"ATEN_CPU_CAPABILITY": "avx2"}, {"LD_PRELOAD": "libjemalloc.so"})
        }
        assert len(marks) == 6

    def test_a_launcher_s_thread_count_is_no_other_machine(self) -> None:
        assert fingerprint(self.HOST, "2.13.0", {"OMP_NUM_THREADS": "1", "HOME": "x"}) == fingerprint(
            self.HOST, "2.13.0", {}
        )
        assert is_switch("OMP_PROC_BIND")
        assert not is_switch("MKL_NUM_THREADS")
