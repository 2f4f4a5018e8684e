"""Paths that a process and all its children may write to, enforced by the kernel.

Run as a script, `python -I -S landlock.py MEANS FILE COMMAND...`, it gives up writing anywhere but below FILE's paths
and becomes COMMAND: so it holds from any program's first instruction, and none of it can be undone. It needs the
standard library alone, and is the only thread of its process, as both means ask for.

Landlock (Linux 5.19 and later) is taken first: it changes nothing else. Where it is switched off, a user namespace
(Linux 5.12 and later) with every mount read-only but those paths.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LANDLOCK, MOUNTS = "Landlock", "read-only mounts"
DEVICES = ("/dev", "/proc")
"""Granted for what exists in them alone, not for new entries."""
OLDEST_ABI = 2
"""The first forbids every rename from folder to folder, with which many caches write."""

_NR_CREATE, _NR_ADD, _NR_RESTRICT, _NR_MOUNT_SETATTR = 444, 445, 446, 442  # the same on all architectures of today
_WRITE_FILE, _REMOVE_AND_MAKE, _REFER, _TRUNCATE = 1 << 1, 0b1_1111_1111 << 4, 1 << 13, 1 << 14
"""Rights of linux/landlock.h. _REMOVE_AND_MAKE: remove dir and file; make char, dir, regular, socket, fifo, block,
symbolic link."""
_NO_NEW_PRIVS, _NEW_USER, _NEW_MOUNTS = 38, 0x10000000, 0x00020000
_BIND_ALL, _READ_ONLY, _RECURSIVE, _CWD = 0x1000 | 0x4000, 0x1, 0x8000, -100

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Landlock's version here; 0 where the kernel has none or a container keeps it away."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc.syscall(_NR_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def means() -> str:
    """LANDLOCK, MOUNTS or, where this machine has neither, the empty string; both by trying."""
    if sys.platform != "linux":
        return ""
    if abi() >= OLDEST_ABI:
        return LANDLOCK
    command = confined(["true"], MOUNTS, os.devnull)
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return "" if tried.returncode else MOUNTS


def confined(command: Sequence[str], by: str, file: str) -> list[str]:
    """The command as it must be started so that it writes below the paths in a file alone (with NUL between them)."""
    return [sys.executable, "-I", "-S", __file__, by, file, *command]


def restrict(by: str, paths: list[str]) -> None:
    """From now on, and for good: this process writes below these paths alone. Raises OSError."""
    _checked(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    if by == MOUNTS:
        _by_mounts(paths)
    else:
        _by_landlock(paths)


def _by_landlock(paths: list[str]) -> None:
    of_files = _WRITE_FILE | (_TRUNCATE if abi() >= 3 else 0)
    everything = of_files | _REMOVE_AND_MAKE | _REFER
    attributes = struct.pack("=Q", everything)
    rules = _checked(_libc.syscall(_NR_CREATE, attributes, ctypes.c_size_t(8), ctypes.c_uint(0)), "landlock")
    for path in paths:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # what is not there is not granted
        granted = everything if os.path.isdir(path) and path not in DEVICES else of_files  # noqa: PTH112
        rule = struct.pack("=Qi", granted, place)
        _checked(_libc.syscall(_NR_ADD, rules, ctypes.c_int(1), rule, ctypes.c_uint(0)), path)
        os.close(place)
    _checked(_libc.syscall(_NR_RESTRICT, rules, ctypes.c_uint(0)), "landlock")
    os.close(rules)


def _by_mounts(paths: list[str]) -> None:
    user, group, here = os.geteuid(), os.getegid(), os.getcwd()  # noqa: PTH109
    _checked(_libc.unshare(_NEW_USER | _NEW_MOUNTS), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)
    kept = [os.fsencode(path) for path in paths if os.path.exists(path)]  # noqa: PTH110
    for each in kept:
        _checked(_libc.mount(each, each, None, ctypes.c_ulong(_BIND_ALL), None), each)
    _read_only(b"/", _RECURSIVE, True)
    for each in kept:
        _read_only(each, 0, False)
    os.chdir(here)  # the folder itself is now below another mount


def _read_only(path: bytes, flags: int, wanted: bool) -> None:
    attributes = struct.pack("=QQQQ", *((_READ_ONLY, 0) if wanted else (0, _READ_ONLY)), 0, 0)
    number, at, size = ctypes.c_long(_NR_MOUNT_SETATTR), ctypes.c_int(_CWD), ctypes.c_size_t(len(attributes))
    _checked(_libc.syscall(number, at, path, ctypes.c_uint(flags), attributes, size), path)


def _checked(result: int, what: object) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(what))
    return result


def main(by: str, rules: str, command: list[str]) -> int:
    """Become the command; the exit codes of a shell where that can't be, 125 where nothing would be enforced."""
    try:
        with open(rules, "rb") as file:  # noqa: PTH123
            restrict(by, [os.fsdecode(path) for path in file.read().split(b"\0") if path])
    except OSError as error:
        sys.stderr.write(f"gobrrr: the kernel does not keep it from writing: {error}\n")
        return 125
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"gobrrr: cannot start {command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
