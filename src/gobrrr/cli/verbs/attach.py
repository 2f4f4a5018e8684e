"""`gobrrr attach`: samples a running program from outside with py-spy, and says what it does. No code enters it."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from gobrrr.cli import options
from gobrrr.cli.interrupts import Interrupts
from gobrrr.cli.reading.report import show
from gobrrr.errors import GobrrrError

FORMS = {"text": ".txt", "json": ".json", "markdown": ".md"}
MOST_S, MOST_HZ = 3600, 1000


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("pid", type=options.at_least_one, metavar="PID", help="process of the program, or its launcher")
    parser.add_argument("--seconds", type=options.more_than_zero, default=10.0, metavar="S", help="how long (10)")
    rate = "samples per second of a process (50, less where there are many, or a long look)"
    parser.add_argument("--rate", type=options.at_least_one, metavar="HZ", help=rate)
    parser.add_argument("--format", choices=tuple(FORMS), help="default: by -o, or text")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE, or to attach.json in a folder")


def run(args: argparse.Namespace) -> int:
    """Look and tell. Raises GobrrrError where nothing can be seen."""
    from gobrrr.recording.live import spy
    from gobrrr.recording.live.outside import Watch
    from gobrrr.report.forms import formats
    from gobrrr.report.forms.formats import View
    from gobrrr.report.text.progress import Patience
    from gobrrr.rules.outside.build import look

    form, output, code = args.format, args.output, 0
    if output and Path(output).is_dir():
        form = form or "json"
        output = str(Path(output, f"attach{FORMS[form]}"))
    form = form or formats.by_suffix(output or "")
    formats.check(form, "look")
    _check(args)
    with Interrupts() as interrupts, tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
        watch = Watch(spy.find(), args.pid, args.seconds, args.rate, Path(folder))
        try:
            try:
                with Patience(f"looking at pid {args.pid}"):
                    watch.until_the_end()
            except KeyboardInterrupt:
                watch.seen.ended, code = "ended early, by Ctrl-C", interrupts.exit_code
            seen = watch.stop()
        finally:
            watch.close()
        show(look(seen), form, output, View(str(Path.cwd())))
    return code


def _check(args: argparse.Namespace) -> None:
    """Raises GobrrrError for figures that make no look, for a process that is not there, and for one that gobrrr
    watches from inside."""
    from gobrrr.capture.process.config import VARIABLE, Config
    from gobrrr.recording.live.spy import PYTHON
    from gobrrr.system import process_tree

    if args.seconds > MOST_S or (args.rate or 0) > MOST_HZ:
        raise GobrrrError("a look lasts an hour at most, at 1000 samples per second at most", "gobrrr attach --help")
    if process_tree.is_over(args.pid):
        raise GobrrrError(f"there is no process {args.pid}", PYTHON)
    for pid in process_tree.tree(args.pid):  # the pid may be that of `gobrrr run`
        config = Config.from_env(process_tree.facts(pid).get("environ", {}).get(VARIABLE, ""))
        if config is not None:
            raise GobrrrError(f"gobrrr run watches pid {pid} already", f"gobrrr top {config.folder}")
