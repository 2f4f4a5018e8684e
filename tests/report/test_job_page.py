"""The page of a job: a lane for each rank on one scale, waiting apart from transfer, every rank's figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from gobrrr.cli.main import main
from gobrrr.ledger.job.ranks import Job
from gobrrr.report.html import job_page
from gobrrr.report.html.html import to_html
from tests.pipeline.test_files import training, write
from tests.report.test_report_html import Parsed
from tests.report.test_tuning_page import words
from tests.support import page_samples as samples

JOB = samples.job()


@pytest.mark.parametrize("but", [frozenset(("schema",)), frozenset(("schema", "error"))], ids=["all", "but errors"])
@pytest.mark.parametrize("word", samples.HOSTILE, ids=range(len(samples.HOSTILE)))
def test_no_text_of_a_job_makes_an_element_or_an_attribute(word: str, but: frozenset[str]) -> None:
    tame, taken = (Parsed(to_html(samples.with_texts(JOB, each, but))) for each in ("tame", word))
    assert taken.elements == tame.elements
    assert taken.others == tame.others == [] and taken.open == []


def test_the_data_block_holds_the_job_as_it_is() -> None:
    block = re.findall(r'<script type="application/json" id="report">([^<]*)</script>', to_html(JOB))
    assert msgspec.json.decode(block[0], type=Job) == JOB


def lanes(job: Job) -> dict[str, list[tuple[str, float]]]:
    """(class, width) of each lane's stretches."""
    return {
        lane["name"]: [
            (rect.attrib["class"], float(rect.attrib["width"])) for rect in ET.fromstring(lane["chart"]).iter("rect")
        ]
        for lane in job_page.parts(job)["lanes"]
    }


def test_a_lane_is_own_time_then_waiting_then_transfer() -> None:
    assert lanes(JOB) == {
        "rank 0": [("part phase0", 500), ("part idle", 100), ("part waiting", 300), ("part transfer", 100)],
        "rank 1": [("part phase0", 500), ("part idle", 300), ("part waiting", 100), ("part transfer", 100)],
        "rank 2": [("part phase0", 500), ("part idle", 400), ("part transfer", 100)],
    }  # fmt: skip


def test_all_lanes_are_on_the_scale_of_the_longest_step() -> None:
    short = msgspec.structs.replace(JOB.ranks[0], step_ns=5e6, exposed_communication_ns=0.0, accounts=(("host", 5e6),))
    found = lanes(samples.job(ranks=(short, *JOB.ranks[1:])))
    assert found["rank 0"] == [("part idle", 500)]
    assert sum(width for _, width in found["rank 2"]) == pytest.approx(1000)


def test_waiting_is_never_more_than_what_is_exposed() -> None:
    shy = msgspec.structs.replace(JOB.ranks[0], exposed_communication_ns=1e6)
    assert ("part waiting", 100) in lanes(samples.job(ranks=(shy, *JOB.ranks[1:])))["rank 0"]


def test_the_page_says_who_is_late_who_waits_and_what_is_missing() -> None:
    seen = words(to_html(JOB))
    for said in (JOB.verdict, "rank 2 late", "waits for later ranks", "not there: 3", "rank 2 to 4 of 8 calls",
                 "4 calls", "bad.json no trace", "the device works", "host BRR301"):  # fmt: skip
        assert said in seen, said
    assert "rank 0 late" not in seen and 'class="doubtful"' not in to_html(JOB)
    assert 'class="doubtful"' in to_html(samples.job(bound="unreliable"))
    assert Parsed(to_html(Job(verdict="Unreliable: no rank could be read."))).open == []


def test_of_very_many_ranks_those_with_most_own_time_are_drawn() -> None:
    many = tuple(msgspec.structs.replace(JOB.ranks[0], rank=i, source=f"r{i}", exposed_communication_ns=9e6 - 500.0 * i)
                 for i in range(10_000))  # fmt: skip
    content = to_html(samples.job(ranks=many, groups=()))
    drawn = job_page.parts(samples.job(ranks=many, groups=()))["lanes"]
    assert [lane["name"] for lane in drawn] == [f"rank {i}" for i in range(10_000 - job_page.MOST_LANES, 10_000)]
    assert f"{10_000 - job_page.MOST_LANES} ranks with less of it are not drawn" in content
    assert f"and {10_000 - job_page.MOST_ROWS} more" in content and len(content) < 1_500_000


@pytest.mark.parametrize(("suffix", "start"), [("html", "<!DOCTYPE"), ("md", "**"), ("json", "{"), ("txt", "Balanced")])
def test_diagnose_writes_every_form_of_a_job(tmp_path: Path, suffix: str, start: str) -> None:
    files = [
        str(write(tmp_path / f"{i}.json", training(), distributedInfo={"rank": i, "world_size": 2})) for i in range(2)
    ]
    target = tmp_path / f"out.{suffix}"
    assert main(["diagnose", *files, "-o", str(target)]) == 0
    content = target.read_text()
    assert content.startswith(start) and "Balanced over 2 ranks" in content
    if suffix == "html":
        assert "A lane for each rank" in content
