"""From a program to its receipt and recipe: diagnose, choose remedies, try them, write down what came of it."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

import msgspec

from gobrrr import __version__
from gobrrr.errors import GobrrrError
from gobrrr.guard.reference.watched_steps import TWIN_STEPS
from gobrrr.ledger.steps.other_loops import own_share
from gobrrr.machine.gauges import counter
from gobrrr.machine.probe.fingerprint import of_hardware
from gobrrr.machine.probe.system_probe import probe
from gobrrr.pipeline import first_run, proposals, redaction
from gobrrr.pipeline.ceilings import interpreter
from gobrrr.pipeline.file_names import ARMS, CACHES, DIAGNOSIS, JOURNAL, PAGE, PATCH, RECEIPT, RECIPE
from gobrrr.remedies import registry
from gobrrr.remedies.edits import catalogue
from gobrrr.remedies.edits.forms import Edit, SetKeyword
from gobrrr.remedies.mechanism.applying import unable
from gobrrr.remedies.model import SAFETY, Remedy
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report
from gobrrr.system import files
from gobrrr.system.escape import is_plain, plain
from gobrrr.trial.arm import meters
from gobrrr.trial.arm.process_group import adopted
from gobrrr.trial.arm.ranks import launcher
from gobrrr.trial.edit.program_edit import ProgramEdit
from gobrrr.trial.race import headroom, loader_search
from gobrrr.trial.race.candidates import Candidate
from gobrrr.trial.race.guard_runs import draws_otherwise
from gobrrr.trial.race.loader_search import Family
from gobrrr.trial.race.lockstep import ROOM
from gobrrr.trial.race.referee import LiveReferee, Program
from gobrrr.trial.race.tuning import Journal, Tuning
from gobrrr.trial.receipt import receipt as receipts
from gobrrr.trial.receipt import recipe as recipes
from gobrrr.trial.receipt.receipt import EditTold, Receipt, Speedup, TrialResult, is_of
from gobrrr.trial.receipt.recipe import Fits, Ingredient, Recipe
from gobrrr.trial.sandbox import limits
from gobrrr.trial.sandbox.limits import AT_HOME, Limits
from gobrrr.trial.sandbox.workspace import mark_output
from gobrrr.trial.statistics.objective import BETTER, MEMORY, TIME, Objective
from gobrrr.units import duration, size

if TYPE_CHECKING:
    from gobrrr.report.text.tuning_progress import PlainLines

STAPLES = ("compile", "bf16_autocast", "fused_optimizer", "malloc_thresholds")
"""Raced on every program that they serve, beside what findings call for, as experts do: rules and ceilings miss what
some of them bring."""
COMPILED = 0.1
"""Share of the step that compile is expected to bring where no finding says more (1.1 to 1.2 times on BERT, GPT-2 and
ViT): it starts slowest, so it comes before what promises a few per cent."""
IN_STEP = ("model", "optimizer")
"""Places of remedies that work on the step itself: whatever they bring, the wait for a loader stays."""
LEAST_OWN = 0.01
"""Share of the watched time that the steps must have, for the shares of others to say how long these take."""
MOST_SHOWN = 400
"""Characters of a command line in a recipe, where it is for people alone."""
CONTEXT = 600 << 20
"""Bytes that CUDA takes of a device for each process, whatever that holds: 0.5 GiB on an H100."""
PROPOSING = 0.4
"""Share of what is left after the diagnosis for a command that proposes edits; proposed: as much as the proof of one
takes; how long agents need would settle it."""
LATE = 0.05
"""Share of a tuning's time by which the rest may be late before it is killed: half of what is promised, to clear up
in."""


class Wishes(NamedTuple):
    """The user's wishes. `named` are tried whatever the diagnosis says, `only` alone."""

    seconds: float = 600.0
    named: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    seed: int = 0
    limits: Limits = AT_HOME
    """Places that the program may write to beside its own copy of the working directory."""
    redact: redaction.Patterns = ()
    objective: Objective = TIME
    patches: tuple[ProgramEdit, ...] = ()
    """Edits of the user's own."""
    propose: str = ""
    """A command of the user's that proposes an edit for each finding."""

    def allow(self, name: str) -> bool:
        """Say whether the user lets it be tried."""
        return name not in self.without and (not self.only or name in self.only)


class Outcome(NamedTuple):
    """Results that a tuning left behind."""

    receipt: Receipt
    folder: Path
    report: Report
    seconds: float
    """Wall time of all of it."""


def tune(
    command: Sequence[str], source: Path, folder: Path, wishes: Wishes, stream: TextIO,
    stops: Callable[[Callable[[], None]], object] = lambda _: None,
) -> Outcome:  # fmt: skip
    """The whole of it. `stops` is given what ends the arms at once, from any thread. Raises GobrrrError where the
    program cannot be diagnosed or a name is unknown."""
    registry.composed(())  # names are checked before anything is run
    for name in {*wishes.named, *wishes.without, *wishes.only} - {*catalogue.all_names()}:
        registry.remedy(name)
    check_gauge(wishes.objective, sys.platform == "linux")  # elsewhere torch knows no device that tells its peak
    mark_output(folder)
    clock = first_run.Clock(time.monotonic(), wishes.seconds)
    with contextlib.ExitStack() as stack:
        within, protection = confined(wishes.limits, source, folder, stack, stream)
        report = first_run.diagnosed(command, source, folder / DIAGNOSIS, stream, within, wishes.redact, clock, STAPLES)
        check_gauge(wishes.objective, report.device is not None)
        chosen = candidates(report, wishes)
        missing = unable([c.name for c in chosen], interpreter(command), first_run.PROBING * clock.left)
        chosen = [c for c in chosen if c.name not in missing]
        family = loader_family(report, chosen, wishes)
        waits = waits_for_loaders(report, chosen, wishes)
        guests = [registry.remedy(name) for name in family.guests] if family else []
        chosen += [_candidate(remedy, report, remedy.predicts(report)) for remedy in guests]
        live, edits = [c.name for c in chosen], list[proposals.Proposal]()
        if wishes.objective is not MEMORY:
            edits = list(_edits(report, command, source, folder, wishes, clock, stream, live))
        chosen += [each.candidate(edits) for each in edits]
        on_trial = proposals.on_trial(edits)
        program = measured_program(report, command, source, within)._replace(
            options=options_of([c.name for c in chosen if c.name not in on_trial], report), edits=on_trial
        )
        receipt = _raced(chosen, program, folder, own_folder(folder, ARMS, stack), wishes, clock, stream, stops,
                         family, waits)  # fmt: skip
    notes = (protection, *(f"{name} cannot be applied here: {why}" for name, why in missing.items()))
    notes += tuple(_unplaced(report, {c.name for c in chosen}, wishes))
    told = msgspec.structs.replace(receipt, seconds=round(clock.spent, 1))
    receipt = signed(told, report, command, source, wishes.seed)
    receipt = redaction.redacted(msgspec.structs.replace(receipt, notes=(*receipt.notes, *notes)), wishes.redact)
    receipts.write(receipts.marked(receipt), folder / RECEIPT)
    proven = receipt.complete and receipt.kept and receipt.guard.green and receipt.speedup is not None
    applied = {*receipt.kept} - receipt.edits.keys()  # an edit is in the patch alone
    write_or_put_aside(folder / RECIPE, recipes.to_toml(recipe_of(receipt)) if proven and applied else "")
    write_or_put_aside(folder / PATCH, by_hand(receipt, command, source, report) if proven else "")
    return Outcome(receipt, folder, report, clock.spent)


def _edits(
    report: Report, command: Sequence[str], source: Path, folder: Path, wishes: Wishes, clock: first_run.Clock,
    stream: TextIO, live: Collection[str],
) -> Iterator[proposals.Proposal]:  # fmt: skip
    """Edits that the user lets be tried. `live`: remedies that are raced."""
    wanted = {*wishes.named, *wishes.only} & {*catalogue.all_names()}
    offered = proposals.of_catalogue(report, command, source, wanted, live)
    known = [each for each in offered if wishes.allow(each.edit.name)]
    for name in sorted(wanted - {each.edit.name for each in known}):
        stream.write(f"gobrrr: {name} finds no place in the source; by hand: gobrrr explain {name}\n")
    yield from known
    yield from (proposals.Proposal(edit, named=True) for edit in wishes.patches)
    if wishes.propose:
        yield from proposals.proposed(wishes.propose, report, source, folder, PROPOSING * clock.left, stream)


def _unplaced(report: Report, chosen: set[str], wishes: Wishes) -> Iterator[str]:
    """Edits that a critical finding calls for and no other remedy serves, whose place is not found in the source."""
    edits = {*registry.edit_names()}
    for finding in report.findings:
        named = [name for name in finding.remedies if wishes.allow(name)]
        if finding.severity == "critical" and named and not chosen & {*named} and {*named} <= edits:
            saving = f"about {duration(finding.saving.expected_ns)} a step ({finding.code})"
            yield f"{named[0]} finds no place in the source, for {saving}; by hand: gobrrr explain {named[0]}"


def measured_program(report: Report, command: Sequence[str], source: Path, within: Limits) -> Program:
    """Return the program as a referee must know it, by the report of a watched run. Raises GobrrrError where a device
    holds it only once."""
    ranks = max(1, report.world_size or 1)
    return Program(tuple(command), source, float(report.step.plain_wall_ns), report.step.loop, within,
                   ranks * report.threads, ranks * _resident(report), between_ns=between_ns(report),
                   copies=copies(report))  # fmt: skip


def _raced(
    chosen: Sequence[Candidate], program: Program, folder: Path, arms: Path, wishes: Wishes, clock: first_run.Clock,
    stream: TextIO, stops: Callable[[Callable[[], None]], object], family: Family | None = None, waits: bool = False,
) -> Receipt:  # fmt: skip
    """Race, guard and confirmation; a KeyboardInterrupt leaves the receipt of what was finished."""
    with refereed(program, arms, wishes.seed, wishes.objective, clock, stream, stops) as (referee, listener):
        journal = Journal(folder / JOURNAL, first_run.about(program.command, program.source))
        tuning = Tuning(chosen, program.step_ns, referee, journal, seconds=clock.left, seed=wishes.seed,
                        listener=listener, objective=wishes.objective, family=family, waits=waits,
                        between_ns=program.between_ns)  # fmt: skip
        earlier = tuning.take_over()
        if journal.foreign:
            told = f"{journal.foreign} trials there were not measured here with this program: once more"
            stream.write(f"gobrrr: {told}\n")
        if earlier:
            stream.write(f"gobrrr: {earlier}\n")
        with listener:
            tuning.run()
    given = {name: dict(options) for name, options in referee.options.items()}
    receipt = tuning.receipt()
    edits = {name: EditTold(each.edit.diff, dict(each.edit.env), each.edit.args)
             for name, each in program.edits.items() if name in receipt.kept}  # fmt: skip
    places = {name: places for name, places in referee.taken().items() if name in receipt.kept}
    return msgspec.structs.replace(receipt, options=given, places=places, edits=edits)


def confined(
    allowed: Limits, source: Path, folder: Path, stack: contextlib.ExitStack, stream: TextIO
) -> tuple[Limits, str]:
    """Return the limits of arms, with a folder for their caches, and the sentence on the stream that says where they
    may write. Arms and caches are gone when the stack is left."""
    stack.enter_context(adopted())
    within = allowed._replace(caches=own_folder(folder, CACHES, stack))
    told = limits.told(source, within)  # it may start a process to see
    stream.write(f"gobrrr: {told}\n")
    return within, told


@contextlib.contextmanager
def refereed(
    program: Program, arms: Path, seed: int, objective: Objective, clock: first_run.Clock, stream: TextIO,
    stops: Callable[[Callable[[], None]], object],
) -> Iterator[tuple[LiveReferee, PlainLines]]:  # fmt: skip
    """Give a referee of the program, closed at the end, and the listener that shows its progress on the stream. Its
    arms have LATE of the clock's seconds more than the clock."""
    from gobrrr.report.text import tuning_progress

    listener = tuning_progress.listener(stream, clock.left, objective)
    referee = LiveReferee(program, arms, seed=seed, progress=listener.progress, overrun=1.0,
                          until=clock.ends + LATE * clock.seconds, objective=objective)  # fmt: skip
    stops(referee.stop)
    with contextlib.closing(referee):
        yield referee, listener


def _resident(report: Report) -> int:
    """Most bytes that the program held of the machine's own memory; 0 where not known."""
    if report.device is None:
        return report.memory.peak or 0
    return (report.device.memory.resident if report.device.memory is not None else None) or 0


def copies(report: Report) -> int:
    """Return how many copies of the program fit on its device at once: 0 without a device, 2 where its memory is not
    known. Raises GobrrrError where only one does: an arm with a remedy runs beside one without."""
    memory = report.device.memory if report.device is not None else None
    if memory is None or not memory.capacity:
        return 0 if report.device is None else 2
    held = memory.reserved or memory.peak
    found = int(memory.capacity / (ROOM * held + CONTEXT))
    if found < 2:
        raise GobrrrError(
            f"the device holds this program once ({size(held)} of {size(memory.capacity)}), and a tuning runs it "
            "twice beside each other, as it is and with a remedy",
            "tune it with a smaller batch, or on a device with more memory",
        )
    return found


def write_or_put_aside(file: Path, text: str) -> None:
    """Write the text, or put an earlier tuning's file aside: it must not be taken for this one's."""
    if text:
        files.write(file, text.encode())
    else:
        first_run.put_aside(file)


def check_gauge(objective: Objective, device: bool) -> None:
    """Raises GobrrrError where the objective cannot be measured on this machine; of a `device` torch tells it."""
    if objective is MEMORY and not device and (why := meters.unable()):
        raise GobrrrError(why, meters.HINT)
    if objective.own == "energy":
        counter.opened().close()


def candidates(report: Report, wishes: Wishes) -> list[Candidate]:
    """Remedies that the report calls for, staples, and those named; where memory is to be saved those that may save
    some, whatever the report says of time. Semantic ones only when named."""
    asked, for_memory, own = {*wishes.named, *wishes.only}, wishes.objective is MEMORY, own_step_ns(report)
    found = []
    for name in dict.fromkeys((*registry.names(), *wishes.named, *wishes.only)):
        if name in catalogue.all_names():  # an edit is offered by its place in the source
            continue
        remedy = registry.remedy(name)
        if not wishes.allow(name):
            continue
        if name not in asked and (remedy.is_pointless(report) or _is_withheld(remedy, report)):
            continue
        predicted = remedy.predicts(report)
        is_staple = name in STAPLES and not for_memory
        if is_staple and predicted.ceiling_ns <= 0 and remedy.played(report) is None:
            predicted = Saving(0.0, COMPILED * own if name == "compile" else 0.0, own)
        called_for = remedy.saves_memory if for_memory else is_staple or predicted.ceiling_ns > 0
        if name in asked or (called_for and remedy.safety != "semantic"):
            found.append(_candidate(remedy, report, predicted, named=name in asked or for_memory))
    return found if for_memory else [candidate.within(own) for candidate in found]


def _is_withheld(remedy: Remedy, report: Report) -> bool:
    """Say whether findings are there that call for it elsewhere and none offers it: TF32 where it is allowed already,
    float16 where there is bfloat16. What was rehearsed says for itself what it brings."""
    calls = [finding for finding in report.findings if finding.code in remedy.codes]
    offered = not calls or remedy.name not in registry.names() or any(remedy.name in each.remedies for each in calls)
    return not offered and remedy.played(report) is None


def between_ns(report: Report) -> float:
    """Return the ns between two steps, on average, of other loops run within TWIN_STEPS: evaluations, a generation."""
    own = own_share(report.loops)
    often = sum(loop.between for loop in report.loops if 0 < loop.beside <= TWIN_STEPS * loop.times)
    return report.step.plain_wall_ns * often / own if own > LEAST_OWN else 0.0


def own_step_ns(report: Report) -> float:
    """The usual step without what it surely waits for its loader: the most that what works on it can save."""
    surely = [f.evidence["headspace_low"].value for f in report.findings if "headspace_low" in f.evidence]
    usual = sum(each.ns for each in report.ledger if each.account == "data_wait")
    return float(report.step.plain_wall_ns) - min(usual, max(map(float, surely), default=0.0))


def _candidate(remedy: Remedy, report: Report, predicted: Saving, named: bool = False) -> Candidate:
    calls = [finding for finding in report.findings if remedy.name in finding.remedies]
    choice = min((finding.remedies.index(remedy.name) for finding in calls), default=0)
    risk = len(SAFETY) if remedy.precision else SAFETY.index(remedy.safety)
    return Candidate(remedy.name, predicted, frozenset(remedy.conflicts), named, choice, risk,
                     frozenset(remedy.overlaps), remedy.unseen, remedy.place in IN_STEP,
                     remedy.played(report) is not None, calls[0].code if calls else "",
                     draws_otherwise(remedy))  # fmt: skip


def waits_for_loaders(report: Report, chosen: Sequence[Candidate], wishes: Wishes) -> bool:
    """Say whether to measure the headspace: not for memory, nor where the user lets no loader remedy be tried."""
    if wishes.objective is MEMORY or (wishes.only and not {*wishes.only} & {*headroom.LOADERS}):
        return False
    return headroom.is_wanted(report, [each.name for each in chosen if each.named])


def loader_family(report: Report, chosen: Sequence[Candidate], wishes: Wishes) -> Family | None:
    """The settings of loaders to search, where a finding calls for that; not for memory, which workers only cost."""
    if wishes.objective is MEMORY:
        return None
    return loader_search.family(report, [c.name for c in chosen], wishes.allow)


def options_of(names: Sequence[str], report: Report) -> dict[str, dict[str, int]]:
    """With which options remedies are applied, of those that have some."""
    found = {name: registry.remedy(name).options(report) for name in names}
    return {name: options for name, options in found.items() if options}


def own_folder(folder: Path, prefix: str, stack: contextlib.ExitStack) -> Path:
    """Return a new folder that is nobody's but ours: it is deleted afterwards."""
    found = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.resolve()))
    stack.callback(shutil.rmtree, found, ignore_errors=True)
    return found


def signed(receipt: Receipt, report: Report, command: Sequence[str], source: Path, seed: int) -> Receipt:
    """The receipt with what says where and of what it is."""
    return msgspec.structs.replace(
        receipt, command=tuple(redaction.shown(command)), folder=str(source), seed=seed, machine=report.machine,
        date=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        versions={**report.versions, "gobrrr": __version__}, script_sha256=script_digest(command, source),
        fingerprint=of_hardware(probe()), loop=report.step.loop,
    )  # fmt: skip


def by_hand(receipt: Receipt, command: Sequence[str], source: Path, report: Report) -> str:
    """Return the kept remedies as a diff against the user's files: the script, and the files that findings point to."""
    from gobrrr.remedies.edits.program import diff, read, texts

    edits = [catalogue.placed(name, report, source) for name in receipt.edits if name in catalogue.all_names()]
    remedies = [registry.remedy(name) for name in receipt.kept if name not in receipt.edits]
    edits += [_measured_edit(each, receipt, source) for each in remedies]
    known = [edit for edit in edits if edit is not None]
    return diff(texts(read(catalogue.program_files(report, command, source)), known, source))


def _measured_edit(remedy: Remedy, receipt: Receipt, source: Path) -> Edit | None:
    """Return the remedy's edit; of loaders, only those it took hold of: it may have left others alone, with reason."""
    edit = remedy.change_of_source(receipt.options.get(remedy.name, {}))
    if not isinstance(edit, SetKeyword) or remedy.place != "loader":
        return edit
    split = [place.rpartition(":") for place in receipt.places.get(remedy.name, ())]
    seen = [((source / file).resolve(), int(line)) for file, _, line in split if line.isdecimal()]
    return replace(edit, seen=tuple(seen))


def script_digest(command: Sequence[str], source: Path) -> str:
    """SHA-256 of the program's script; empty where there is none (a module, another command) that can be read."""
    with contextlib.suppress(OSError):
        for word in command[1:] if launcher(command) else command[1:2]:
            file = source / word
            if word.endswith(".py") and file.is_file():
                return hashlib.sha256(file.read_bytes()).hexdigest()
    return ""


def recipe_of(receipt: Receipt) -> Recipe:
    """Return the recipe of what a receipt kept, ready to be applied."""

    def brought(name: str) -> TrialResult | Receipt:
        """Return its own race trial, alone or on top of others; the receipt where only all together was measured."""
        trials = [t for t in receipt.trials if t.purpose == "add" and t.remedies == (name,) and t.verdict in BETTER
                  and is_of(t, receipt.kept, receipt.options)]  # fmt: skip
        return trials[-1] if trials else receipt

    assert receipt.speedup is not None
    return Recipe(
        recipes.SCHEMA, program=plain(" ".join(receipt.command[1:]), MOST_SHOWN), date=receipt.date, gobrrr=__version__,
        objective=receipt.objective if receipt.objective != TIME.name else None, speedup=_figures(receipt.speedup),
        memory=_figures(receipt.memory), energy=_figures(receipt.energy), guard=receipt.guard.verdict,
        fits=Fits(torch=receipt.versions.get("torch", ""), python=receipt.versions.get("python", ""),
                  machine=receipt.machine, fingerprint=receipt.fingerprint, script_sha256=receipt.script_sha256),
        remedies=tuple(
            Ingredient(name, dict(receipt.options.get(name, {})), speedup=_figures(brought(name).speedup),
                       memory=_figures(brought(name).memory), energy=_figures(brought(name).energy),
                       guard=receipt.guard.verdict)
            for name in receipt.kept if name not in receipt.edits),
    )  # fmt: skip


def _figures(found: Speedup | None) -> tuple[float, float, float] | None:
    return (found.median, found.low, found.high) if found is not None else None


def tell(outcome: Outcome, program: Sequence[str], stream: TextIO, price_per_hour: float | None = None) -> None:
    """The report on a stream, with the files and the next command; `program` as it may be shown."""
    from gobrrr.report.forms import formats

    folder, receipt = outcome.folder, outcome.receipt
    command = _next_command(folder, receipt, program)
    view = formats.View(next_command=command, seconds=outcome.seconds, price_per_hour=price_per_hour)
    formats.show(receipt, stream, view)
    files.write(folder / PAGE, formats.render(receipt, "html", formats.View(next_command=command)))
    left = [name for name in (RECEIPT, PAGE, RECIPE, PATCH) if (folder / name).is_file()]
    stream.write(f"files     {', '.join(left)} in {folder}\n")
    if RECIPE in left and PATCH not in left:
        stream.write(f"          no {PATCH}: the place of what was kept was not found in the source\n")
    stream.flush()


def _next_command(folder: Path, receipt: Receipt, program: Sequence[str]) -> str:
    """Return the command to type now; nothing where the program has a word that does not fit into a line."""
    if receipt.complete and (folder / PATCH).is_file() and not (folder / RECIPE).is_file():
        return shlex.join(["git", "apply", str(folder / PATCH)])
    if receipt.complete and not (folder / RECIPE).is_file():
        return shlex.join(["gobrrr", "report", str(folder / DIAGNOSIS)])
    if not all(map(is_plain, program)):
        return ""
    goal = ["--objective", receipt.objective] if receipt.objective != TIME.name else []
    verb = ["run", "--recipe", str(folder / RECIPE)] if receipt.complete else ["tune", *goal, "--resume", str(folder)]
    return shlex.join(["gobrrr", *verb, *program])
