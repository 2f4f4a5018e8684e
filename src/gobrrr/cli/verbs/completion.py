"""`gobrrr completion SHELL`: a script that lets a shell complete verbs, options and files, from the verbs' parsers."""

from __future__ import annotations

import argparse
import sys
from typing import Any

SHELLS = ("bash", "zsh", "fish")
FILES, FOLDERS = ("FILE", "BASELINE", "TRACE", "A", "B"), ("DIR", "FOLDER")
"""Metavars of what is a file, or a folder."""
WHERE = {
    "bash": "gobrrr completion bash > ~/.local/share/bash-completion/completions/gobrrr",
    "zsh": "gobrrr completion zsh > a folder of $fpath, as _gobrrr",
    "fish": "gobrrr completion fish > ~/.config/fish/completions/gobrrr.fish",
}


class CompletionCommand:
    """Prints what shtab makes of all parsers together."""

    name = "completion"
    help = "a script that completes verbs and options in bash, zsh or fish"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        """The shell."""
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = "where it goes:\n" + "\n".join(f"  {line}" for line in WHERE.values())
        parser.add_argument("shell", choices=SHELLS)

    def run(self, args: argparse.Namespace) -> int:
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
        command: Any = load(verb)
        sub = verbs.add_parser(verb.name, help=verb.help, allow_abbrev=False)
        command.prepare(sub)
        if getattr(command, "takes_program", False):
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


command = CompletionCommand()
