"""How often do the kept reports of the zoo doubt their own measurement, and how far can they be relied on?

    python -m benchmarks.doubts

Counts the findings of band 9 in benchmarks/results/zoo-*.json by severity; the levels of confidence that follow from
them; and BRR907 as it would speak of the overheads in them: above the promise, and above it by more than the noise.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.ledger.model.ledger import Ledger, StepStats
from gobrrr.rules import load
from gobrrr.rules.model.finding import Finding, Saving
from gobrrr.rules.verdict.sentence import confidence
from tests.support.machine_samples import machine

RESULTS = Path(__file__).parent / "results"
OVERHEAD = re.compile(r"watching (?:cost|is at least) ([\d.]+) %")


def reports() -> Iterator[dict[str, Any]]:
    """Reports of all kept runs of the zoo."""
    for file in sorted(RESULTS.glob("zoo-*.json")):
        for program in json.loads(file.read_text())["programs"]:
            if isinstance(program, dict) and (found := (program.get("run") or {}).get("report")):
                yield found


def findings(report: dict[str, Any]) -> list[Finding]:
    """Findings with the parts that are kept."""
    return [
        Finding(each["code"], "", each["bound"], each["severity"], Saving(**each["saving"]), each["message"])
        for each in report["findings"]
    ]


def ledger(report: dict[str, Any], overhead: float = 0.0) -> Ledger:
    """The step alone, with what watching cost."""
    known = {name: value for name, value in report["step"].items() if name in StepStats.__struct_fields__}
    step = msgspec.convert(known, StepStats, strict=False)
    return Ledger(step=msgspec.structs.replace(step, overhead_share=overhead))


def main() -> int:
    """Print the counts."""
    codes: Counter[str] = Counter()
    levels: Counter[str] = Counter()
    promised = beyond = 0
    for report in reports():
        found = [each for each in findings(report) if each.code != "BRR907"]
        overhead = next((m for each in report["findings"] if (m := OVERHEAD.search(each["message"]))), None)
        if overhead is not None:
            promised += 1
            again = list(load()["BRR907"].check(ledger(report, float(overhead[1]) / 100), machine()))
            beyond += len(again)
            found += again
        codes.update(f"{each.code} {each.severity}" for each in found if each.code.startswith("BRR9"))
        levels[confidence(ledger(report), found, report["verdict"]["bound"]).level] += 1
    print(f"{levels.total()} reports; confidence: {', '.join(f'{n} {level}' for level, n in levels.most_common())}")
    print(f"BRR907: {promised} have an overhead above 1 %, {beyond} of them beyond the noise of their step")
    print(*(f"{code}: {count}" for code, count in sorted(codes.items())), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
