"""What a process and its children use, read here of processes that the tests start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gobrrr.system import process_tree


def test_a_tree_has_parents_first_and_nobody_elses_processes() -> None:
    inner = "import time; time.sleep(600)"
    outer = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {inner!r}]); print(p.pid, flush=True)"
    program = [sys.executable, "-c", f"{outer}; sys.stdin.read(); p.kill()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert process_tree.tree(child.pid) == [child.pid, grandchild]
        mine = process_tree.tree(os.getpid())
        assert mine[0] == os.getpid() and mine.index(child.pid) < mine.index(grandchild)
        assert not {child.pid, grandchild} & {*process_tree.tree(os.getpid(), without=child.pid)}
        child.communicate()


def test_a_reading_grows_with_what_is_used(tmp_path: Path) -> None:
    before = process_tree.reading(os.getpid(), 0.0)
    total = sum(number * number for number in range(2_000_000))
    after = process_tree.reading(os.getpid(), 1.0)
    assert total and before.awake_ns is not None and after.awake_ns is not None
    assert after.awake_ns - before.awake_ns > 1e6
    assert after.rss_bytes > 1 << 20 and after.threads >= 1 and (after.switches or 0) >= (before.switches or 0)
    elsewhere = process_tree.reading(os.getpid(), 0.0, proc=str(tmp_path))
    assert (elsewhere.awake_ns, elsewhere.queued_ns) == (None, None), "this system does not tell"


def test_facts_are_those_at_the_start() -> None:
    with subprocess.Popen(["sleep", "600"], env={"RANK": "3"}, cwd="/") as child:
        for _ in range(1000):  # exec closes the pipe that Popen waits for before the new words are in place
            if (found := process_tree.facts(child.pid)).get("cmdline") and found.get("environ"):
                break
        child.kill()
    assert (found["cmdline"], found["environ"]["RANK"], found["cwd"]) == (["sleep", "600"], "3", "/")


def test_one_that_has_ended_is_over_and_has_no_reading() -> None:
    with subprocess.Popen(["true"]) as child:
        while not process_tree.is_over(child.pid):  # not collected yet: a zombie
            pass
    assert process_tree.is_over(child.pid)
    assert process_tree.reading(child.pid, 5.0) == process_tree.Reading(5.0)
    assert process_tree.facts(child.pid) == {}
