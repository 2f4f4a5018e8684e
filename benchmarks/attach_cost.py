"""What sampling as `gobrrr attach` does costs a program: its steps while it is looked at over those without,
in turns.

python -m benchmarks.attach_cost [ROUNDS]
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gobrrr.recording.live.spy import find
from gobrrr.system import process_tree

PROGRAM = Path(__file__).parent / "attach_programs" / "steps.py"
STRETCH_S, STARTS_S = 3.0, 6.0
ARMS = {"as it runs, 50 Hz": (50, False), "paused, 50 Hz": (50, True), "as it runs, 200 Hz": (200, False),
        "paused, 200 Hz": (200, True), "nobody looks": None}  # fmt: skip
"""Rate, and whether py-spy stops the program for each sample, which `gobrrr attach` does not."""


def stretch(pid: int, how: tuple[int, bool] | None, folder: Path) -> tuple[float, float]:
    """One look at all processes, or as long without; when it began and ended."""
    began = time.monotonic()
    if how is None:
        time.sleep(STRETCH_S)
        return began, time.monotonic()
    rate, pauses = how
    words = ["--duration", str(int(STRETCH_S)), "--rate", str(rate), "--idle", "--threads", "--full-filenames"]
    looks = [
        subprocess.Popen([find(), "record", "--pid", str(each), "--format", "speedscope", "-o", str(folder / str(each)),
                          *words, *([] if pauses else ["--nonblocking"])], stdout=-3, stderr=-3)
        for each in process_tree.tree(pid)
    ]  # fmt: skip
    for each in looks:
        each.wait()
    return began, time.monotonic()


def _first(pid: int) -> None:
    """Give a program the cores before all others, where we may: on a shared machine it would measure these."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-19")


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
            child = subprocess.Popen([sys.executable, str(PROGRAM), kind, str(file)], start_new_session=True)
            try:
                _first(child.pid)
                time.sleep(STARTS_S)
                spans: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
                for turn in range(rounds):
                    order = list(ARMS.items())
                    for arm, how in order[turn % len(order) :] + order[: turn % len(order)]:
                        spans[arm].append(stretch(child.pid, how, Path(folder)))
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
