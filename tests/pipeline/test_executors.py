"""The reduction of ranks on executors: the same job, whoever runs it."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

import gobrrr
from gobrrr.errors import GobrrrError
from gobrrr.ledger.job.ranks import Job
from gobrrr.rules.verdict.report import Report
from tests.pipeline.test_files import training


@pytest.fixture
def ranks(tmp_path: Path) -> str:
    """Six ranks, of which the fourth waits longer for its data than the others; and a file that is none."""
    for rank in range(6):
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 6},
                    "traceEvents": training(wait=500 if rank == 3 else 100, comm=20)}  # fmt: skip
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    (tmp_path / "broken.json").write_text("{")
    return str(tmp_path)


def test_one_trace_gives_a_report_and_several_give_a_job(ranks: str) -> None:
    report = gobrrr.diagnose([f"{ranks}/rank3.json"])
    assert isinstance(report, Report) and report.verdict.bound == "data"
    job = gobrrr.diagnose([ranks])
    assert isinstance(job, Job) and len(job.ranks) == 7 and job.ranks[-1].error
    with pytest.raises(GobrrrError):
        gobrrr.diagnose([f"{ranks}/nothing.json"])


def test_any_executor_gives_the_same_job(ranks: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert gobrrr.diagnose([ranks], executor=pool) == gobrrr.diagnose([ranks])


def test_a_cluster_of_dask_gives_the_same_job(ranks: str) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        mock.patch.dict(os.environ),  # it leaves MALLOC_TRIM_THRESHOLD_ there, which makes another machine of this one
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert gobrrr.diagnose([ranks], executor=client.get_executor()) == gobrrr.diagnose([ranks])
