"""Several ranks in one arm: rank 0 is timed and hears the referee, all stand still together, the guard watches each.

A step of synchronous training takes all ranks equally long, so rank 0's is the job's. Between blocks the whole family
of the arm is stopped, launcher and ranks alike: no rank can wait for one that is stopped while others run.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.capture.process.config import said_in
from gobrrr.capture.process.launch import run_by_python
from gobrrr.guard.model.account import Account
from gobrrr.system.commands import ACCELERATE, TORCHRUN

JOBS = TORCHRUN + ACCELERATE
"""Launchers whose jobs an arm can be."""
ACCOUNT = "account"
"""Name of the files in an arm's folder in which other ranks keep their accounts, before their suffix."""
PORT = "PET_MASTER_PORT"
"""Environment variable that torchrun takes its --master-port from (torch.distributed.argparse_util)."""


def launcher(command: Sequence[str], among: Collection[str] = JOBS) -> str:
    """Return the launcher of ranks that a command runs as its script or module; empty where it is none of `among`."""
    names = (Path(command[0]).name, Path(run_by_python(command)).name)
    found = next((name for name in names if name in among), "")
    return "" if found == "accelerate" and "launch" not in command else found


def port_of_its_own(command: Sequence[str]) -> dict[str, str]:
    """Return the environment in which torchrun meets its ranks on a port that is free now: arms of one job run beside
    each other, and each would take the same one."""
    if not launcher(command):
        return {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {PORT: str(free.getsockname()[1])}


def without_ports(command: Sequence[str]) -> list[str]:
    """Return a launcher's command line without the port that it names: several arms would meet on it."""
    if launcher(command, ACCELERATE):  # its own default is one port for all
        return _accelerated(command, {"main_process_port": "0"})
    return _with(command, {"--master-port": "", "--rdzv-endpoint": "localhost:0"})


def of_one_rank(command: Sequence[str]) -> list[str]:
    """Return a launcher's command line for one rank."""
    if launcher(command, ACCELERATE):
        one = {"main_process_port": "0", "num_processes": "1", "num_machines": "1", "multi_gpu": ""}
        return _accelerated(command, one)
    return _with(without_ports(command), {"--nproc-per-node": "1", "--nnodes": "1", "--node-rank": ""})


def _accelerated(command: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return accelerate's command line with these values of its options, without the flags whose value is empty. What
    follows the script is the program's."""
    at = next(n for n, word in enumerate(command) if word in ACCELERATE or Path(word).name in ACCELERATE)
    at += command[at + 1 : at + 2] == ["launch"]
    kept, rest = list[str](), iter(command[at + 1 :])
    for word in rest:
        name, equals, _ = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        if word in ("-m", "--module") or word.endswith(".py"):
            kept += [word, *rest]
        elif name[:2] != "--" or key not in options:
            kept.append(word)
        elif options[key] and not equals:
            next(rest, None)
    return [*command[: at + 1], *(f"--{name}={said}" for name, said in options.items() if said), *kept]


FLAGS = ("-m", "--module", "--standalone", "--no-python", "--run-path")
"""Options of torchrun that take no value."""


def _with(command: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return torchrun's command line with other values of its options, without those whose value is empty. What follows
    the first word that is no option is the program's."""
    at = next((n for n, word in enumerate(command) if word in TORCHRUN or Path(word).name in TORCHRUN), None)
    if at is None or not launcher(command):
        return list(command)
    kept, rest = list[str](), iter(command[at + 1 :])
    dropped = {"--nproc-per-node", "--nnodes"}  # torchrun's own values of these are not always 1
    for word in rest:
        name, equals, _ = word.replace("_", "-").partition("=")
        value = [] if equals or name in FLAGS or not word.startswith("-") else [next(rest, "")]
        if not word.startswith("-"):
            kept += [word, *rest]
        elif beginning := {full for full in options if full.startswith(name) and len(name) > len("--n")}:
            dropped |= beginning  # argparse takes beginnings
        else:
            kept += [word, *value]
    given = (f"{name}={said}" for name, said in options.items() if said and name in dropped)
    return [*command[: at + 1], *given, *kept]


def world_size() -> int:
    """Return the ranks of the job that this process is of; 1 where nothing is said."""
    return said_in("WORLD_SIZE") or 1


def suffix() -> str:
    """Return what ends the names of this rank's files; nothing for rank 0."""
    rank = said_in("RANK") or 0
    return f".rank{rank}" if rank else ""


def accounts(folder: Path) -> list[Account]:
    """Return what the other ranks of a timed arm have noted so far: each writes lines, at the steps that rank 0 notes
    as well."""
    found = []
    for file in folder.glob(f"{ACCOUNT}.rank*"):
        account = Account(rank=int(file.suffix.removeprefix(".rank")))
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # else it is being written
                account.add(msgspec.json.decode(line, type=Account))
        found.append(account)
    return found


class Nobody:
    """The referee of another rank than 0: nobody listens, so that one whose remedies fail ends the job."""

    def send(self, kind: str, **fields: Any) -> None:
        if kind == "failed":
            sys.stderr.write(f"[rank{said_in('RANK') or 0}]: Traceback (of gobrrr)\n"
                             f"[rank{said_in('RANK') or 0}]: gobrrr: {fields.get('error')}\n")  # fmt: skip
            os._exit(1)

    def close(self) -> None: ...
