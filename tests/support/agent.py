"""A client of the official package with a `gobrrr mcp` of its own, as an agent has it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client

Work = Callable[[Client], Awaitable[None]]


def served(work: Work, folder: Path, hangs_s: float = 300) -> None:
    """Do it with a client of a server that was started in a folder; `hangs_s` ends a test that waits for what never
    comes."""

    async def both() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "gobrrr", "mcp"], env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=folder
        )
        async with Client(stdio_client(server)) as client:
            with anyio.fail_after(hangs_s):
                await work(client)

    anyio.run(both)


async def answer(client: Client, tool: str, **arguments: object) -> tuple[bool, dict[str, Any]]:
    """Whether a call is an error, and its document, which its text is as well."""
    result = await client.call_tool(tool, arguments)
    found = result.structured_content
    assert found is not None and json.loads(result.content[0].text) == found
    return result.is_error, found
