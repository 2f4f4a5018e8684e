"""Each recipe beside the program without it: CPU time and the measure, in turn, with seeds of their own.

python -m benchmarks.recipes.compared [NAME ...] [--seeds 5]
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
RECIPES = {
    "distillation": ("digits.py", "STUDENT = 3", {"DISTILLED": "True", "STUDENT": "3"}),
    "small_student": ("digits.py", "STUDENT = 12", {"STUDENT": "3"}),
    "layer_freezing": ("digits.py", "", {"FROZEN_FROM": "4"}),
    "fewer_evaluations": ("digits.py", "", {"EVALUATE_EVERY": "4"}),
    "progressive_resizing": ("digits.py", "", {"SMALL_UNTIL": "4"}),
    "length_warm_up": ("sequences.py", "", {"WARM_UP": "60"}),
}
"""Program, what is set in the one without the recipe, and what the recipe sets."""
RUN = """
import sys, time, torch
source, seed = sys.stdin.read(), int(sys.argv[1])
plant = torch.manual_seed
torch.manual_seed = lambda n: plant(n + 1000 * seed)
code = compile(source, "program", "exec")
began = time.process_time()
exec(code, {"__name__": "__main__"})
print("seconds", time.process_time() - began)
"""


def run(text: str, seed: int) -> tuple[float, float]:
    """Seconds of CPU and the measure that a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(seed)], input=text, capture_output=True, text=True, check=True
    )
    *_, measure, seconds = re.findall(r"[\d.]+", done.stdout)
    return float(seconds), float(measure)


def with_values(text: str, values: dict[str, str]) -> str:
    """The program with other values in the line in capitals."""
    (line,) = re.findall(r"^[A-Z_, ]+ = .*$", text, re.MULTILINE)
    names, given = (part.split(", ") for part in line.split(" = "))
    told = [values.get(name, value) for name, value in zip(names, given, strict=True)]
    return text.replace(line, f"{', '.join(names)} = {', '.join(told)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    print("| recipe | CPU time, without over with | without | with | difference of pairs |\n|---|--:|--:|--:|--:|")
    for name in args.names:
        file, without, recipe = RECIPES[name]
        text = (FOLDER / file).read_text(encoding="utf-8")
        plain = with_values(text, dict([without.split(" = ")]) if without else {})
        pairs = [(run(plain, seed), run(with_values(text, recipe), seed)) for seed in range(args.seeds)]
        ratio = statistics.median(a[0] / b[0] for a, b in pairs)
        before, after = (statistics.mean(pair[n][1] for pair in pairs) for n in (0, 1))
        changes = [b[1] - a[1] for a, b in pairs]
        told = f"{statistics.mean(changes):+.2f} ({min(changes):+.2f} to {max(changes):+.2f})"
        print(f"| {name} | {ratio:.2f} | {before:.2f} | {after:.2f} | {told} |", flush=True)


if __name__ == "__main__":
    main()
