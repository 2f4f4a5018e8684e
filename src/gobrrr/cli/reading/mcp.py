"""`gobrrr mcp`: the verbs as tools for agents, over the Model Context Protocol."""

from __future__ import annotations

import argparse

from gobrrr.errors import GobrrrError


def prepare(parser: argparse.ArgumentParser) -> None:
    """No options: an agent's client starts it as it is."""


def run(args: argparse.Namespace) -> int:
    """Serve; raises GobrrrError where the package of the protocol is missing or too old."""
    try:
        from gobrrr.cli.agents import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        raise GobrrrError("the package mcp, from 2.0 on, is not installed", "pip install 'gobrrr[mcp]'") from None
    server().run("stdio")
    return 0
