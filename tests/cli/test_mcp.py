"""`gobrrr mcp`, driven by a client of the official package over stdio as an agent drives it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import PROGRAMS
from tests.snapshots.cases import TRACE

pytest.importorskip("mcp", reason="the extra gobrrr[mcp] is not installed")

import anyio
from mcp import Client

from tests.support.agent import answer, served

SLEEPS = """import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("[1, 2]", flush=True)
with open("pids.new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pids.new", "pids")
time.sleep(600)
"""


def test_the_tools_are_verbs_with_arguments(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert set(tools) >= {"run", "diagnose", "explain", "prove", "verify", "tune"}
        assert tools["run"].input_schema["required"] == ["program"] and "limit_s" in tools["run"].description
        assert all(each.description and "context" not in each.input_schema["properties"] for each in tools.values())

    served(work, tmp_path)


def test_pages_findings_and_errors(shelf: Path, tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        is_error, page = await answer(client, "explain", code="BRR405")
        assert not is_error and page["codes"][0]["code"] == "BRR405" and "## What it means" in page["page"]
        is_error, report = await answer(client, "diagnose", path=TRACE, folder=str(shelf))
        assert not is_error and report["findings"] and report["exit_code"] is None and "tables" not in report
        is_error, of_a_run = await answer(client, "diagnose", path="starved", folder=str(shelf))
        assert not is_error and "BRR401" in {each["code"] for each in of_a_run["findings"]}
        is_error, error = await answer(client, "explain", code="--help")
        assert is_error and error["schema"] == "gobrrr.error/1" and error["exit_code"] == 2
        is_error, error = await answer(client, "verify", receipt="nowhere.json")
        assert is_error and "nowhere.json" in error["error"]
        for words, folder in ((["--unprotected", "train.py"], "."), (["train.py"], "no/folder")):
            result = await client.call_tool("run", {"program": words, "folder": folder})
            assert result.is_error and result.structured_content is None

    served(work, tmp_path)


def test_gates_of_a_proof_are_arguments(tmp_path: Path) -> None:
    (tmp_path / "eval.py").write_text("")

    async def work(client: Client) -> None:
        for accept, measure, said in ((["loss >= -1%"], [], "less of it is better"), (["f1 >= -1%"], ["a"], "0 groups"),
                                      (["f1 >= -1%"], ["e:f1", "log:f1"], "2 --measure for 1 gates")):  # fmt: skip
            is_error, error = await answer(
                client, "prove", program=["eval.py"], folder=str(tmp_path), env=["A=1"], accept=accept, measure=measure
            )
            assert is_error and said in error["error"] and error["exit_code"] == 2

    served(work, tmp_path)


def test_what_a_program_prints_is_progress_and_no_document(tmp_path: Path) -> None:
    told: list[str | None] = []

    async def note(_: float, __: float | None, message: str | None) -> None:
        told.append(message)

    async def work(client: Client) -> None:
        words = [str(PROGRAMS / "ends.py"), "exit"]
        result = await client.call_tool("run", {"program": words}, progress_callback=note)
        assert result.structured_content["schema"] == "gobrrr.report/1" and result.structured_content["exit_code"] == 7

    served(work, tmp_path)
    assert any(message and message.startswith("loss ") for message in told)


def started(folder: Path) -> list[psutil.Process]:
    """The program and its child."""
    return [psutil.Process(int(pid)) for pid in (folder / "pids").read_text().split()]


async def until_begun(folder: Path) -> list[psutil.Process]:
    while not (folder / "pids").exists():
        await anyio.sleep(0.05)
    return started(folder)


def test_a_call_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    left: list[psutil.Process] = []

    async def work(client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "run", {"program": ["sleeps.py"]})
            left.extend(await until_begun(tmp_path))
            group.cancel_scope.cancel()
        while any(each.is_running() for each in left):
            await anyio.sleep(0.05)
        assert not (await answer(client, "explain", code="405"))[0]  # and the server goes on

    served(work, tmp_path)
    assert len(left) == 2


def test_calls_that_measure_wait_for_each_other(tmp_path: Path) -> None:
    said = "with open('log', 'a') as log: log.write('{} ')"
    (tmp_path / "logs.py").write_text(
        "\n".join(["import time", said.format("begin"), "time.sleep(3)", said.format("end")])
    )

    async def work(client: Client) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(client.call_tool, "run", {"program": ["logs.py"]})

    served(work, tmp_path)
    assert (tmp_path / "log").read_text() == "begin end begin end "


def test_a_call_that_takes_too_long_is_ended_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)

    async def work(client: Client) -> None:
        is_error, error = await answer(client, "run", program=["sleeps.py"], limit_s=8)
        assert is_error and error["exit_code"] == 124 and "ended after 8 s" in error["error"]

    served(work, tmp_path)
    if (tmp_path / "pids").exists():  # a busy machine may not have come so far
        assert not any(psutil.pid_exists(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_a_server_that_is_killed_takes_the_program_with_it(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "run", "arguments": {"program": ["sleeps.py"]}}
    lines = [{"id": 1, "method": "initialize", "params": hello}, {"method": "notifications/initialized"},
             {"id": 2, "method": "tools/call", "params": call}]  # fmt: skip
    command = [sys.executable, "-m", "gobrrr", "mcp"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        server.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n" for line in lines))
        server.stdin.flush()
        program, child = anyio.run(until_begun, tmp_path)
        server.kill()
    program.wait(60)
    child.kill()  # it left the program's session: nothing of ours is to end it


def test_without_the_package_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['mcp'] = None; from gobrrr.cli.main import main; sys.exit(main(['mcp']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "pip install 'gobrrr[mcp]'" in done.stderr and "Traceback" not in done.stderr
