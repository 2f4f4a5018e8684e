"""Reading traces: figures that others published beside ours, time and memory beside other tools', growth with size.

    python -m benchmarks.traces [--peers PYTHON] [--events 10000,100000,1000000,10000000] [--ranks 1000]

--peers is an interpreter with HolisticTraceAnalysis and torch-tb-profiler (pip install them into a venv of its own).
All read the same files, each in a process of its own, in turn, three times; import and start-up count. Generated files
have the events of a training step on a GPU: ops, launches, kernels. Writes benchmarks/results/traces-DATE.json and
docs/find-out/traces.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import traces_page
from benchmarks.stamp import stamp
from gobrrr.ledger.steps.profiled_window import Profiled
from gobrrr.machine.model.machine import UNKNOWN
from gobrrr.pipeline.traces import diagnosed
from gobrrr.recording.trace_files.limits import DEFAULT
from gobrrr.recording.trace_files.sources import Source

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))
PUBLISHED = {
    "tracelens/h100_bert_small": ("span busy %", 7.92), "tracelens/h100_timesformer": ("span busy %", 99.03),
    "tracelens/mi300_vit_falconsai": ("span busy %", 24.99), "tracelens/mi300_qwen_0.5b": ("span busy %", 89.78),
    "kineto/v100_resnet50_workers0": ("mean step ms", 177.592),
    "kineto/v100_resnet50_workers4": ("mean step ms", 141.068),
}  # fmt: skip
ALL = ("hta/a100_trace_diff_control", "hta/v100_trace_diff_test", "hta/v100_ddp_ns_resolution",
       "kineto/v100_resnet50_workers0", "tracelens/h100_timesformer")  # fmt: skip
GENERATED = (100_000, 300_000, 1_000_000)
"""Events of files that are made here: the shared ones have 70,000 at most."""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_dir=sys.argv[1])
ranks = list(found.t.traces)
found.get_temporal_breakdown(visualize=False)
found.get_idle_time_breakdown(ranks=ranks, visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
found.get_comm_comp_overlap(visualize=False)
"""
TENSORBOARD = """
import sys
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator
data = RunProfileData.parse("worker", None, sys.argv[1], "/tmp")
RunGenerator("worker", None, data).generate_run_profile()
print(*data.recommendations, sep=" ")
"""
OURS = """
import sys
from gobrrr.cli.main import main
if main(["diagnose", sys.argv[1], "--format", "json", "--jobs", "1"]):
    sys.exit(1)
"""
PEAK = """
with open("/proc/self/status") as status, open(sys.argv[2], "w") as peak:
    peak.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""
"""A process's own peak since it began: what wait4 gives holds the parent's, from before exec."""


def figures() -> list[dict[str, Any]]:
    """Ours beside what was published, and the verdict."""
    rows = []
    for name, (what, value) in PUBLISHED.items():
        report = diagnosed(Source(str(TRACES / f"{name}.json.gz")), UNKNOWN, DEFAULT)
        span = 100 * report.device.span.busy_share if report.device else 0.0
        rows.append({"trace": name, "what": what, "published": value, "ours": _mean(name) if "step" in what else span,
                     "verdict": report.verdict.sentence})  # fmt: skip
        print(f"{name:34} {what} {value:8.3f} published, {rows[-1]['ours']:8.3f} ours   {rows[-1]['verdict'][:60]}")
    return rows


def _mean(name: str) -> float:
    from gobrrr.ledger.build import build_ledger
    from gobrrr.recording.trace_files.offline import of_trace
    from gobrrr.recording.trace_files.sources import read

    return build_ledger(Profiled(of_trace(read(Source(str(TRACES / f"{name}.json.gz"))))), UNKNOWN).step.mean_ns / 1e6


class Read(NamedTuple):
    """What a fresh process took: seconds, peak MiB, exit code, and the last line that it printed."""

    seconds: float
    mib: float
    code: int
    said: str


def run(python: str, code: str, path: Path) -> Read:
    """One tool on one file or folder."""
    with tempfile.NamedTemporaryFile("r") as peak:
        began = time.perf_counter()
        done = subprocess.run([python, "-c", code + PEAK, str(path), peak.name], capture_output=True, text=True)
        taken = time.perf_counter() - began
        return Read(taken, int(peak.read() or 0) / 1024, done.returncode, done.stdout.strip()[-2000:])


def beside_peers(python: str) -> list[dict[str, Any]]:
    """HTA, the TensorBoard plugin and us on the same files, in turn; and what each calls the cause."""
    rows = []
    for name in (*ALL, *GENERATED):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rank.json.gz"
            _provide(name, file)
            tools = {"ours": (sys.executable, OURS, file), "hta": (python, HTA, Path(folder)),
                     "tensorboard": (python, TENSORBOARD, file)}  # fmt: skip
            runs: dict[str, list[Read]] = {tool: [] for tool in tools}
            for _ in range(3):
                for tool, how in tools.items():
                    runs[tool].append(run(*how))
            report = diagnosed(Source(str(file)), UNKNOWN, DEFAULT)
            mib = _unpacked(file)
        row: dict[str, Any] = {"trace": name, "unpacked_MiB": mib}
        for tool, reads in runs.items():
            row[tool] = {"seconds": statistics.median(r.seconds for r in reads), "MiB": reads[0].mib,
                         "code": reads[0].code}  # fmt: skip
        row["ours"]["verdict"] = report.verdict.sentence
        row["tensorboard"]["verdict"] = re.sub(r"<[^>]*>", "", runs["tensorboard"][0].said.splitlines()[-1][:300]
                                               if runs["tensorboard"][0].said else "")  # fmt: skip
        row["hta"]["verdict"] = ""  # it has tables only
        rows.append(row)
        print(f"{name!s:34} file {row['unpacked_MiB']:.0f} MiB   " + "   ".join(
            f"{tool} {row[tool]['seconds']:.2f} s {row[tool]['MiB']:.0f} MiB exit {row[tool]['code']}" for tool in tools
        ))  # fmt: skip
        for tool in ("ours", "tensorboard"):
            print(f"    {tool}: {row[tool]['verdict'] or 'nothing'}")
    return rows


def _provide(name: str | int, file: Path) -> None:
    """A shared trace, or one of so many events."""
    if isinstance(name, str):
        file.write_bytes((TRACES / f"{name}.json.gz").read_bytes())
        return
    plain = file.with_name("plain")
    generate(plain, name)
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(plain.read_bytes())
    plain.unlink()


def _unpacked(path: Path) -> float:
    with gzip.open(path) as file:
        return sum(len(block) for block in iter(lambda: file.read(1 << 20), b"")) / 2**20


def generate(path: Path, num_events: int, rank: int = 0, meets: int = 0) -> None:
    """A trace of so many events: steps of 1000 ops, each with a launch and a kernel. `meets`: of so many kernels one is
    a collective of all ranks."""
    per_step = 3000
    reduce = (',"Collective name":"allreduce","dtype":"Float","In msg nelems":4096,"Out msg nelems":4096,'
              '"Group size":1000,"Process Group Name":"0"')  # fmt: skip
    with path.open("w") as file:
        file.write(
            f'{{"schemaVersion": 1, "distributedInfo": {{"rank": {rank}, "world_size": 1000}}, "traceEvents": [\n'
        )
        for i in range(num_events // 3):
            t = 20 * i
            if i % (per_step // 3) == 0:
                file.write(f'{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{i}","pid":1,"tid":1,"ts":{t},'
                           f'"dur":{20 * per_step // 3},"args":{{}}}},\n')  # fmt: skip
            meeting = meets and i % meets == 0
            name, said = ("ncclDevKernel_AllReduce", reduce) if meeting else (f"ampere_sgemm_{i % 40}", "")
            shapes = f"[[{8 + i % 7},1024],[1024,{1024 + i % 5}]]"
            file.write(
                f'{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{t},"dur":15,"args":'
                f'{{"External id":{i},"Input Dims":{shapes},"Input type":["float","float"]}}}},\n'
                f'{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{t + 5},"dur":4,'
                f'"args":{{"External id":{i},"correlation":{i}}}}},\n'
                f'{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{t + 12},"dur":{9 - rank % 5},'
                f'"args":{{"External id":{i},"correlation":{i},"device":0,"stream":7,"grid":[8,8,1],'
                f'"block":[128,1,1]{said}}}}},\n'
            )
        file.write('{"ph":"i","name":"end","pid":1,"tid":1,"ts":0,"s":"g"}]}\n')


def growth(sizes: list[int]) -> list[dict[str, Any]]:
    """Seconds and peak memory of a fresh process by number of events."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        for size in sizes:
            generate(file, size)
            seconds, peak, code, _ = run(sys.executable, OURS, file)
            mib = file.stat().st_size / 2**20
            rows.append({"events": size, "MiB": mib, "seconds": seconds, "peak_MiB": peak, "code": code})
            print(f"{size:>10} events {mib:8.1f} MiB  {seconds:7.2f} s  {peak:7.0f} MiB  exit {code}")
    return rows


def ranks(count: int) -> dict[str, Any]:
    """Peak memory of one process at a few ranks and at many, each with 250 collectives that are told call by call."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(count):
            generate(Path(folder) / f"rank{rank}.json", 3000, rank, meets=4)
            if rank + 1 in (10, 100, count):
                seconds, peak, exit_code, _ = run(sys.executable, OURS, Path(folder))
                found[str(rank + 1)] = {"seconds": seconds, "peak_MiB": peak, "code": exit_code}
                print(f"{rank + 1:>5} ranks {seconds:7.2f} s  {peak:7.0f} MiB  exit {exit_code}")
    return found


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="an interpreter that has HolisticTraceAnalysis and torch-tb-profiler")
    parser.add_argument("--events", default="10000,100000,1000000,5000000")
    parser.add_argument("--ranks", type=int, default=1000)
    args = parser.parse_args()
    found: dict[str, Any] = {"stamp": stamp()}
    if TRACES.is_dir():
        found["figures"] = figures()
        found["said"] = traces_page.write(TRACES)
        found["beside_peers"] = beside_peers(args.peers) if args.peers else []
    else:
        print(f"{TRACES}: no traces here (GOBRRR_TRACES names their folder): docs/find-out/traces.md stays as it is")
    found["growth"] = growth([int(n) for n in args.events.split(",")])
    found["ranks"] = ranks(args.ranks)
    target = Path(__file__).parent / "results" / f"traces-{found['stamp']['date']}.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
