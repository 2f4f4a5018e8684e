"""Writes what it holds open, and what its streams are, into the file that its first argument names."""

import os
import sys

held = {}
for name in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        target = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        continue  # the listing's own
    held[int(name)] = [target.split(":")[0], os.get_inheritable(int(name))]
streams = [type(stream).__name__ for stream in (sys.stdin, sys.stdout, sys.stderr)]
with open(sys.argv[1], "w") as file:
    print(held, streams, file=file)
print("on stdout")
if sys.stderr is not None:
    print("on stderr", file=sys.stderr)
if 3 in held:
    print(os.read(3, 100))
