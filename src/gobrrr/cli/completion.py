"""`gobrrr completion SHELL`: a script that lets a shell complete verbs, options and files, from the verbs' parsers."""

from __future__ import annotations

import argparse
import sys
from typing import Any

FILES, FOLDERS = ("FILE", "BASELINE", "TRACE", "A", "B"), ("DIR", "FOLDER")
"""Metavars of what is a file, or a folder."""
WHERE = {
    "bash": "gobrrr completion bash > ~/.local/share/bash-completion/completions/gobrrr",
    "zsh": "gobrrr completion zsh > a folder of $fpath, as _gobrrr",
    "fish": "gobrrr completion fish > ~/.config/fish/completions/gobrrr.fish",
}
SHELLS = tuple(WHERE)


def prepare(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "where it goes:\n" + "\n".join(f"  {line}" for line in WHERE.values())
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    """The script on stdout."""
    import shtab

    sys.stdout.write(shtab.complete(every_verb(), args.shell).rstrip("\n") + "\n")
    return 0


def every_verb() -> argparse.ArgumentParser:
    """One parser with a subparser per verb, as argparse would have it; ours are made when a verb is asked for."""
    from gobrrr.cli.main import VERBS, load

    parser = argparse.ArgumentParser(prog="gobrrr")
    parser.add_argument("-V", "--version", action="store_true", help="the version")
    verbs = parser.add_subparsers()
    for verb in VERBS:
        sub = verbs.add_parser(verb.name, help=verb.help, allow_abbrev=False)
        load(verb).prepare(sub)
        if verb.takes_program:
            sub.add_argument("program", nargs="*", metavar="FILE", help="the program and its arguments")
        for action in sub._actions:
            _files(action)
    return parser


def _files(action: Any) -> None:
    """Tell shtab what is a file; of `gobrrr explain` the codes are known."""
    import shtab

    if action.metavar in FILES or action.dest == "run":
        action.complete = shtab.FILE
    elif action.metavar in FOLDERS:
        action.complete = shtab.DIRECTORY
    elif action.metavar == "CODE":
        from gobrrr.rules import pages

        action.choices = pages.codes()
