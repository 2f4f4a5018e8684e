"""The verbs as tools for agents: each call starts a verb in a process of its own, and ends it with all that it started
where the call is cancelled or too long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections import deque
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent

from gobrrr import __version__
from gobrrr.cli.verbs.check import holds_report
from gobrrr.errors import GobrrrError
from gobrrr.trial.arm.process_group import Family

INSTRUCTIONS = """gobrrr finds out why a PyTorch program is slow and proves what makes it faster. Call run (or diagnose,
for a stored run or trace), take one finding with its lines and edits, explain its code, write a unified diff, and prove
it. Keep only what prove calls faster with the same numbers; after changes call run again."""
_START = """import sys
sys.path = [place for place in sys.path if place]
from gobrrr.system.processes import die_with_the_parent
die_with_the_parent(int(sys.argv[1]))
from gobrrr.cli.main import main
sys.exit(main(sys.argv[2:]))"""
"""Program of a call: it ends with this server, and takes no module of the user's folder for one of Python's."""
TOO_LONG = 124
"""Exit code of a call that was ended: as timeout(1) has it."""
LONGEST_S = 600.0
"""Seconds of a call where the agent says nothing (proposed: how long agents' clients wait would settle it)."""
OVER = 3.0
"""How many times its minutes a measurement may take, guard and diagnosis in it, before it is ended (proposed: how late
measurements of slow programs end would settle it)."""
PATIENCE_S = 5.0
"""Seconds to end in good order before all is killed; clients kill a server after four (proposed: how long arms take to
end would settle it)."""
_EVERY_S, _POLL_S = 0.5, 0.05
"""Seconds between notes of progress, and between looks at a process (proposed: reading speed and idle cost)."""
_LAST = 5
"""Lines of a failed verb's stderr that are told (proposed: the longest message of ours is two)."""
MEASURE = ("run", "prove", "verify", "tune")
_MEASURING = anyio.Lock()
_LONG = frozenset(("tables", "lines", "ops", "saved", "rehearsed", "skipped_rules"))
"""Fields of a report that are left out: long, in the recording's folder, and no finding."""


def server() -> MCPServer:
    """The server, with a tool for each verb that agents use."""
    made = MCPServer("gobrrr", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in (run, diagnose, explain, prove, verify, tune):
        made.add_tool(tool)
    return made


async def run(
    context: Context, program: list[str], folder: str = ".", stop_after: int = 0, limit_s: float = LONGEST_S
) -> CallToolResult:
    """Run a PyTorch program as it is and return findings: code, lines of source, saving per step, advice, edits.

    program: its words, ["train.py", "--epochs", "1"], ["-m", "module"] or ["--", "command"]; folder: where it is
    started; stop_after: end it after so many steps (0: never); limit_s: end it after so many seconds.
    """
    options = ["--stop-after", str(stop_after)] if stop_after > 0 else []
    return await _called(context, folder, limit_s, ["run", "--json", *options, *_program(program)])


async def diagnose(
    context: Context, path: str = ".gobrrr", folder: str = ".", limit_s: float = LONGEST_S
) -> CallToolResult:
    """Return the findings of an earlier run (its folder; the latest where none is named) or of a torch.profiler trace.

    path: a run's folder, report.json, a trace or a folder of traces, from `folder` on.
    """
    there = Path(folder, path).absolute()
    verb = "report" if there.exists() and holds_report(there) else "diagnose"
    return await _called(context, folder, limit_s, [verb, str(there), "--json"])


async def explain(context: Context, code: str) -> CallToolResult:
    """Return the page of a finding's code such as BRR401, what it means and how to mend it by hand, or of a remedy."""
    return await _called(context, ".", LONGEST_S, ["explain", "--json", "--", code])


async def prove(
    context: Context, program: list[str], diff: str = "", folder: str = ".", edited_folder: str = "",
    env: list[str] | None = None, accept: list[str] | None = None, rename: list[str] | None = None,
    measure: list[str] | None = None, minutes: float = 5.0,
) -> CallToolResult:  # fmt: skip
    """Race an edit against the program as it is and judge whether it still computes the same; the program's files stay.

    program, folder: as of run; diff: a unified diff against `folder`; or edited_folder: a copy with the edit; or env:
    settings, ["NAME=VALUE"]; accept: changes of what is computed that the user wants, named by an earlier verdict,
    or gates, ["accuracy >= -0.5%"]: how much of the user's measure may be lost; measure: where each gate's value is
    read, ["metrics.json:test.acc"], ["log:val/acc"], ["module:function"] (default: the number printed behind its name);
    rename: parameters that were joined, ["a.weight,b.weight=ab.weight"]. exit_code: 0 faster and right, 1 not faster,
    3 not settled in the time, 5 nothing measured, 6 wrong or changed.
    """
    options = ["--patch", "-"] if diff else []
    options += ["--with", str(Path(folder, edited_folder).absolute())] if edited_folder else []
    options += [f"--env={each}" for each in env or ()] + [f"--rename={each}" for each in rename or ()]
    options += [f"--accept={each}" for each in accept or ()] + [f"--measure={each}" for each in measure or ()]
    words = ["prove", "--json", "--minutes", str(minutes), *options, *_program(program)]
    return await _called(context, folder, OVER * 60 * minutes, words, diff)


async def verify(context: Context, receipt: str, folder: str = ".", minutes: float = 2.0) -> CallToolResult:
    """Measure a receipt of tune or prove once more on this machine; one that this user did not write is not started."""
    words = ["verify", "--json", "--minutes", str(minutes), str(Path(folder, receipt).absolute())]
    return await _called(context, folder, OVER * 60 * minutes, words)


async def tune(
    context: Context, program: list[str], folder: str = ".", minutes: float = 10.0, objective: str = "time"
) -> CallToolResult:
    """Race known remedies on the program's own step and keep what is proven: a receipt, with a recipe and a patch.

    program, folder: as of run; objective: time, memory, throughput or energy.
    """
    words = ["tune", "--json", "--minutes", str(minutes), f"--objective={objective}", *_program(program)]
    return await _called(context, folder, OVER * 60 * minutes, words)


def _program(words: list[str]) -> list[str]:
    """The words of a program. Raises ToolError for what would be an option of ours."""
    if words[:1] and words[0].startswith("-") and words[0] not in ("-m", "--"):
        raise ToolError(f"a program begins with a script, -m or --, not with {words[0]}")
    return words


async def _called(context: Context, folder: str, limit_s: float, words: list[str], stdin: str = "") -> CallToolResult:
    """Return the document that a verb writes; an error where there is none, or the time is over. Verbs that measure
    wait for each other: two at once would be two slow programs."""
    command = [sys.executable, "-c", _START, str(os.getpid()), *words]
    out, said = bytearray(), deque[str](maxlen=_LAST)
    async with _MEASURING if words[0] in MEASURE else contextlib.nullcontext():
        try:
            process = await anyio.open_process(command, cwd=folder, start_new_session=True)
        except (OSError, ValueError) as error:
            raise ToolError(f"cannot start gobrrr in {folder}: {error}") from None
        try:
            with anyio.move_on_after(limit_s):
                await _heard(process, stdin, context, out, said)
        finally:
            is_late = process.returncode is None
            if is_late:
                with anyio.CancelScope(shield=True):
                    await _end(process)
    return _result(words[0], TOO_LONG if is_late else process.returncode or 0, bytes(out), said, limit_s)


async def _heard(process: Process, stdin: str, context: Context, out: bytearray, said: deque[str]) -> None:
    """Until the process has ended: its stdout, and what it says on stderr as progress. Something that it left behind
    may hold stderr for longer."""
    assert process.stdin and process.stdout and process.stderr
    async with anyio.create_task_group() as group:
        group.start_soon(_told, process.stderr, context, said)
        with contextlib.suppress(anyio.BrokenResourceError):
            await process.stdin.send(stdin.encode())
        await process.stdin.aclose()
        async for chunk in process.stdout:
            out += chunk
        while process.returncode is None:
            await anyio.sleep(_POLL_S)
        await anyio.sleep(_POLL_S)
        group.cancel_scope.cancel()


async def _told(stream: ByteReceiveStream, context: Context, said: deque[str]) -> None:
    """Tell the client its lines, the last of those that come together."""
    rest, told, number = "", 0.0, 0
    async for text in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        said.extend(line for line in lines if line.strip())
        number += len(lines)
        if said and anyio.current_time() - told > _EVERY_S:
            told = anyio.current_time()
            await context.report_progress(number, message=said[-1])


async def _end(process: Process) -> None:
    """End it and all that it has started: in good order, else at once."""
    family = Family(process.pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = anyio.current_time() + PATIENCE_S
        family.members()  # now: those in sessions of their own are found through their parents
        family.signal(number)
        while family.members() and anyio.current_time() < until:
            await anyio.sleep(_POLL_S)


def _result(verb: str, code: int, out: bytes, said: deque[str], limit_s: float) -> CallToolResult:
    """The document, without what is long."""
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        why, hint = f"gobrrr {verb} ended with {code} and said nothing", " ".join(said)
        if code == TOO_LONG:
            why, hint = f"gobrrr {verb} was ended after {limit_s:g} s", "give it more time, or the program less work"
        found = dict(GobrrrError(why, hint, code).document())
    for each in (*found.get("trials", ()), found.get("headspace") or {}):
        each.pop("samples", None)
    brief = {"exit_code": code, **{key: value for key, value in found.items() if key not in _LONG}}
    return CallToolResult(
        content=[TextContent(type="text", text=json.dumps(brief))], structured_content=brief,
        is_error=found.get("schema") == "gobrrr.error/1",
    )  # fmt: skip
