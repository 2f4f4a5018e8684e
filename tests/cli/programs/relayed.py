"""Says its process id, then the name of each signal that it gets; ends with SIGTERM. `plain`: handles none."""

import os
import signal
import sys
import time

KEPT = {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGXFSZ"}


def got(number, frame):
    print(getattr(signal.Signals(number), "name", number) if number < 34 else number, flush=True)
    if number == signal.SIGTERM:
        sys.exit(3)


if sys.argv[1:] != ["plain"]:
    for number in signal.valid_signals():
        if getattr(number, "name", "") not in KEPT:
            signal.signal(number, got)
print(os.getpid(), flush=True)
while True:
    time.sleep(10)
