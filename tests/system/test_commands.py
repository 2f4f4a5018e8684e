"""The program behind options, wrappers and launchers, as a shell's user would name it."""

from __future__ import annotations

import pytest

from gobrrr.system.commands import program_of


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python -u train.py", "train.py"), ("python -W ignore a.py b.py", "a.py"),
        ("python -um pkg.train -x", "pkg.train"),
        ("python3.12 -X dev -O a.py", "a.py"), ("python -c 1", "python"), ("python -", "-"), ("python", "python"),
        ("env A=1 python train.py", "train.py"), ("nice -n 5 /opt/bin/python b.py", "b.py"),
        ("numactl -N 0 python c.py", "c.py"), ("env A=1 torchrun --nnodes 1 d.py", "d.py"), ("nice ./e.py x", "e.py"),
        ("torchrun --nproc-per-node 2 -m pkg.train --to x.py", "pkg.train"),
        ("torchrun --nproc-per-node 2 f", "torchrun"),
        ("python -m torch.distributed.run --nproc-per-node 2 -m pkg.train", "pkg.train"),
        ("python -u -m torch.distributed.run --nproc-per-node 2 g.py --to x.py", "g.py"),
        ("python /opt/bin/torchrun --nproc-per-node 2 g.py", "g.py"), ("deepspeed --module pkg.train", "pkg.train"),
        ("accelerate launch train.py --config x.py", "train.py"), ("bash run.sh --fast", "run.sh"),
        ("tool data", "tool"),
        ("python train --to x.py", "train"), ("python -m pkg.train --config cfg.py", "pkg.train"), ("", ""),
    ],
)  # fmt: skip
def test_a_command_is_of_its_program(command: str, program: str) -> None:
    assert program_of(command.split()) == program


def test_a_script_is_named_from_the_folder_that_is_given() -> None:
    assert program_of(["python", "/w/src/./a.py"], "/w") == "src/a.py"
    assert program_of(["python", "/v/a.py"], "/w") == "/v/a.py"
    assert program_of(["python", "/v/../w/a.py"]) == "/w/a.py"
