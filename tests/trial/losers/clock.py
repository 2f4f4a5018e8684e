"""What these programs share: is the remedy switched on by hand, and how long is a step by the program's own clock."""

import os
import statistics
import sys
import time

BY_HAND = os.environ.get("BY_HAND") == "1"


def loop(step):
    """Steps for ever, or so many as asked for and then the median of their milliseconds; the first third is warm-up."""
    num, walls = int(sys.argv[1]) if len(sys.argv) > 1 else 0, []
    while not num or len(walls) < num:
        began = time.perf_counter()
        step()
        walls.append(time.perf_counter() - began)
    print(1e3 * statistics.median(walls[num // 3 :]))
