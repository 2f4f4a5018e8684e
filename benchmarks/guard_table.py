"""The guard's bench as bars and as Markdown."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
DIVERGES = ("high_rate", "diverging")
"""Nets whose runs part by rounding alone: `unverified` is the right answer there."""
NOT_TRIED = ("never took hold", "cannot be applied here")
NOT_RUN = "could not be watched"


def bars(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """The issue's bars on these rows."""
    broken, honest = _ran(_broken(rows)), tried(rows)
    passed = [f"{r['name']} from {r['onset']}: {r['verdict']}" for r in broken if r["green"]]
    refused = [r for r in honest if rejected(r)]
    return {
        "no sabotage is green": {"value": f"{len(passed)} of {len(broken)}", "met": not passed, "which": passed},
        "all sabotages ran": {
            "value": f"{len(broken)} of {len(_broken(rows))}", "met": len(broken) == len(_broken(rows)),
        },
        "the sabotaged program's controls are green": {
            "value": [f"{r['name']}: {r['verdict']}" for r in _controls(rows)],
            "met": all(r["green"] for r in _controls(rows)),
        },
        "at most 1 in 20 honest remedies rejected": {
            "value": f"{len(refused)} of {len(honest)}", "met": 20 * len(refused) <= len(honest),
        },
    }  # fmt: skip


def _broken(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["onset"] is not None]


def _controls(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["kind"] == "sabotages" and r["onset"] is None]


def _ran(rows: list[Row]) -> list[Row]:
    return [r for r in rows if NOT_RUN not in r["reason"]]


def tried(rows: list[Row]) -> list[Row]:
    """Honest remedies that took hold."""
    return [r for r in rows if r["kind"] == "honest" and not any(word in r["reason"] for word in NOT_TRIED)]


def rejected(row: Row) -> bool:
    """Whether an honest remedy is refused; where a net parts from itself, `unverified` is no refusal."""
    return not row["green"] and not (row["verdict"] == "unverified" and row["program"] in DIVERGES)


def table(found: dict[str, Any]) -> str:
    """The result as Markdown."""
    head = (
        f"# The numerics guard, {found['date']}\n\n{found['cpu']}, {found['cores']} cores. Python {found['python']}, "
        f"torch {found['torch']}, gobrrr {found['gobrrr']}\n\n"
    )
    told = "\n".join(
        f"- {'met' if bar['met'] else 'MISSED'}: {name}: {bar['value']}" for name, bar in found["bars"].items()
    )
    return f"{head}{told}\n{_sabotages(found['cases'])}{_honest(found['cases'])}{_cost(found['cases'])}"


def _sabotages(rows: list[Row]) -> str:
    rows = [r for r in rows if r["kind"] == "sabotages"]
    if not rows:
        return ""
    names = list(dict.fromkeys(r["name"] for r in rows))
    lines = [f"| {name} | {_onsets([r for r in rows if r['name'] == name])} |" for name in names]
    return ("\n## Sabotages\n\nOnset and verdict; green ones in bold; the reason of the first.\n\n"
            "| sabotage | verdicts | reason |\n| --- | --- | --- |\n" + "\n".join(lines) + "\n")  # fmt: skip


def _onsets(rows: list[Row]) -> str:
    def said(row: Row) -> str:
        text = row["verdict"] if row["onset"] is None else f"{row['onset']} {row['verdict']}"
        return f"**{text}**" if row["green"] and row["onset"] is not None else text

    return f"{', '.join(map(said, rows))} | {_cell(rows[0]['reason'])}"


def _cell(text: str) -> str:
    return text.replace("|", "/")[:120]


def _honest(rows: list[Row]) -> str:
    rows = [r for r in tried(rows)]
    if not rows:
        return ""
    lines = [
        f"| {r['program']} | {r['name']} | {'**' + r['verdict'] + '**' if rejected(r) else r['verdict']} | "
        f"{r['seconds']} | {_cell(r['reason'])} |" for r in rows
    ]  # fmt: skip
    return ("\n## Honest remedies\n\nThose that took hold; refused ones in bold.\n\n| net | remedy | verdict | seconds "
            "| reason |\n| --- | --- | --- | --- | --- |\n" + "\n".join(lines) + "\n")  # fmt: skip


def _cost(rows: list[Row]) -> str:
    rows = [r for r in rows if r["kind"] == "cost"]
    if not rows:
        return ""
    lines = [f"| {r['name']} | {r['verdict']} | {r['seconds']} | {r['cpu_seconds']} |" for r in rows]
    return ("\n## What the guard costs on BERT\n\n| remedy | verdict | wall s | CPU s |\n| --- | --- | --- | --- |\n"
            + "\n".join(lines) + "\n")  # fmt: skip
