"""What `gobrrr attach` costs a program: its steps while it is looked at, over its steps before and after, in turns.

python -m benchmarks.attach_cost [ROUNDS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).parent / "attach_programs" / "steps.py"
STRETCH_S, STARTS_S = 5.0, 6.0
ARMS = {"as it runs": [], "paused": ["--pause"], "as it runs, 200 Hz": ["--rate", "200"],
        "paused, 200 Hz": ["--rate", "200", "--pause"], "nobody looks": None}  # fmt: skip


def stretch(pid: int, words: list[str] | None) -> tuple[float, float]:
    """One look, or as long without; when it began and ended, without the start of our own processes."""
    began = time.monotonic()
    if words is None:
        time.sleep(STRETCH_S)
        return began, time.monotonic()
    command = [sys.executable, "-m", "gobrrr", "attach", str(pid), "--seconds", str(STRETCH_S), "--json", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return began, time.monotonic()


def means(times: list[float], spans: list[tuple[float, float]]) -> list[float]:
    """Mean step in each stretch."""
    found = []
    for began, ended in spans:
        inside = [t for t in times if began <= t <= ended]
        found.append((inside[-1] - inside[0]) / (len(inside) - 1))
    return found


def main() -> None:
    """Print a row for each program and arm."""
    rounds = int(sys.argv[1]) if sys.argv[1:] else 6
    print("| program | step | arm | median ratio | of rounds |\n|---|---|---|---|---|")
    for kind in ("python", "training", "loader"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "times")
            child = subprocess.Popen([sys.executable, str(PROGRAM), kind, str(file)])
            try:
                time.sleep(STARTS_S)
                spans: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
                for turn in range(rounds):
                    order = list(ARMS.items())
                    for arm, words in order[turn % len(order) :] + order[: turn % len(order)]:
                        spans[arm].append(stretch(child.pid, words))
            finally:
                child.kill()
                child.wait()
            times = [float(line) for line in file.read_text().splitlines()[:-1]]
        plain = means(times, spans["nobody looks"])
        for arm in ARMS:
            ratios = [mine / other for mine, other in zip(means(times, spans[arm]), plain, strict=True)]
            each = f"{min(ratios):.3f} to {max(ratios):.3f}"
            if arm != "nobody looks":
                median = statistics.median(ratios)
                print(
                    f"| {kind} | {1e3 * statistics.median(plain):.2f} ms | {arm} | {median:.3f} | {each} |", flush=True
                )


if __name__ == "__main__":
    main()
