"""docs/find-out/traces.md: what is known of every shared trace, and what gobrrr says."""

from __future__ import annotations

import textwrap
from pathlib import Path

from gobrrr.ledger.job.ranks import Job
from gobrrr.pipeline.traces import diagnose
from gobrrr.rules.verdict.report import Report

PAGE = Path(__file__).parent.parent / "docs" / "find-out" / "traces.md"
HEAD = """# Real traces: what is known of them, and what gobrrr says

Other projects published these traces. Each has what an expert reads in it, and then the headline and the first finding
of `gobrrr diagnose`. Written by `make bench-traces`; the texts are in `benchmarks/traces_page.py`.
"""
READ = {
    "kineto/v100_resnet50_workers0": (
        "V100, ResNet-50 training, loader without workers",
        "The mean step is 177.6 ms: 98.6 kernels, 59.3 loader, 13.7 host. The device works 55.5 % of the time, and the "
        "tensor cores never. Workers are the remedy: they brought 36.5 of the 59.3 ms.",
    ),
    "kineto/v100_resnet50_workers4": (
        "V100, the same ResNet-50 with four workers",
        "The mean step is 141.1 ms: 99.1 kernels, 1.2 loader, 22.7 host. The loader is cured; what the host does "
        "beside it grew.",
    ),
    "tracelens/h100_bert_small": (
        "H100, BERT small, eager inference",
        "The device works 7.9 % from its first to its last event; 58 of 60 kernels are shorter than 10 us.",
    ),
    "tracelens/h100_timesformer": (
        "H100, TimeSformer, video inference",
        "Busy 99.0 % from the first to the last device event, idle 58.6 % of the step: 217.5 ms of video preprocessing "
        "on the host come before the first kernel.",
    ),
    "tracelens/mi300_vit_falconsai": (
        "MI300X, ViT, eager inference",
        "Busy 25.0 % from the first to the last device event.",
    ),
    "tracelens/mi300_qwen_0.5b": (
        "MI300X, Qwen1.5 0.5B",
        "Busy 89.8 % from the first to the last device event whose launch is known; events without one are many.",
    ),
    "tracelens/vllm_prefilldecode_graph_replay": (
        "GPU, vLLM, prefill and decode by graph replay",
        "Links to launches are missing by design: no verdict can be had.",
    ),
    "tracelens/torch_compile_triton": (
        "MI300X, a compiled model with Triton kernels",
        "A few kernels with generated names, 12 launches: too little for a verdict on a loop.",
    ),
    "hta/v100_ddp_ns_resolution": (
        "V100, DDP training, nanoseconds",
        "4876 kernels, 27 of them below the optimizer's step.",
    ),
    "hta/a100_trace_diff_control": (
        "A100, one rank of eight",
        "Steps of 75 to 81 ms. The same job as on the two V100s below.",
    ),
    "hta/v100_trace_diff_test": ("V100, one rank of two", "Steps of 82 to 166 ms: they differ by twice."),
    "hta/a100_2rank_nccl_metadata": (
        "A100, one rank of two, sizes of collectives recorded",
        "Steps near 222 ms.",
    ),
    "hta/alexnet_critical_path": ("A100, AlexNet", "A small program, recorded for its critical path."),
    "hta/simple_add_critical_path": (
        "A100, additions",
        "The critical path has 315 nodes and 314 edges; 159 events are critical.",
    ),
    "hta/alexnet_cupti_counters": ("A100, AlexNet with hardware counters", "The host and hardware counters."),
    "hta/mi250_rocm62_toy_train": ("MI250, ROCm 6.2, a toy's training", "14 launches, with the names of ROCm 6.2."),
    "hta/cpu_only": ("No GPU", "Only the host was recorded."),
    "hta/distributed_info_missing": ("No GPU, no rank", "The host's part of a distributed job."),
    "param/v100_dlrm_8_ranks": (
        "V100, DLRM on eight ranks",
        "Steps of 12.5 to 19.9 ms; exposed communication from 12.6 % (rank 7) to 55.6 % (rank 1); compute "
        "1.2 ms on each.",
    ),
}  # fmt: skip


def write(folder: Path) -> dict[str, dict[str, str]]:
    """The page anew, and what it says by trace."""
    found = {name: said(folder, name) for name in READ}
    parts = [HEAD] + [
        f"## {title}\n\n`{name}`\n\n{_filled(f'**Known.** {known}')}\n\n"
        f"{_filled('**gobrrr.** ' + found[name]['verdict'])}\n\n{_filled(found[name]['finding'])}\n"
        for name, (title, known) in READ.items()
    ]
    PAGE.write_text("\n".join(parts))
    return found


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def said(folder: Path, name: str) -> dict[str, str]:
    """The headline and the first finding; of several ranks what is common to them."""
    path = next(folder.joinpath(name).parent.glob(f"{Path(name).name}.*"))
    told = diagnose([str(path)])
    if isinstance(told, Job):
        return {
            "verdict": told.verdict,
            "finding": f"{len(told.ranks)} ranks; exposed communication is {told.exposed}.",
        }
    return {"verdict": f"{told.verdict.sentence} {told.confidence_line}.", "finding": _first(told)}


def _first(report: Report) -> str:
    """With its advice."""
    if not report.findings:
        return "No finding."
    first = report.findings[0]
    place = f" at `{first.where[0].file}:{first.where[0].line}`" if first.where else ""
    return f"{first.code} {first.name} ({first.severity}){place}: {first.message}. {first.advice}"
