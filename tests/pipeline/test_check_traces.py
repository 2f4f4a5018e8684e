"""`gobrrr check` takes traces too, on either side."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gobrrr.cli.main import main

TRACES = Path(os.environ.get("GOBRRR_TRACES", "../shared/traces"))


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the real traces: set GOBRRR_TRACES")
def test_a_job_without_workers_is_held_against_one_with_four(capsys: pytest.CaptureFixture[str]) -> None:
    """Six steps each: no interval of so few excludes what counts; the shares say it."""
    none, four = (str(TRACES / "kineto" / f"v100_resnet50_workers{n}.json.gz") for n in (0, 4))
    assert main(["check", "--fail-on", "BRR405", none]) == 1
    assert main(["check", "--fail-on", "BRR405", four]) == 0
    capsys.readouterr()
    assert main(["check", "--against", four, none]) == 0
    assert "takes 1.26 times as long" in " ".join(capsys.readouterr().out.split())
    assert main(["check", "--against", four, "--shares", none]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "data wait has 33.4 % of the step, 0.8 % in the baseline" in told and "resnet50_profiler_api.py:42" in told
    assert main(["check", "--against", none, "--shares", four]) == 0
    assert main(["check", "--against", str(TRACES / "hta" / "a100_trace_diff_control.json.gz"), none]) == 2
    assert "recorded on NVIDIA A100-PG509-200, this on Tesla V100-DGXS-32GB" in capsys.readouterr().err
