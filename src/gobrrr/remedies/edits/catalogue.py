"""All edits by name: what each is, where its place is, and what a program becomes; those of a report's findings."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

from gobrrr.errors import GobrrrError
from gobrrr.remedies import registry
from gobrrr.remedies.edits import accumulation, collectives, decoding, inference, layers, lossy, together, updates
from gobrrr.remedies.edits.forms import AddStatement, BeforeTraining, Edit, Rewritten, SetKeyword
from gobrrr.remedies.edits.program import at, diff, files_of, read, texts
from gobrrr.remedies.edits.source import Source
from gobrrr.rules.idioms.table import idioms
from gobrrr.rules.model.finding import Finding
from gobrrr.rules.verdict.report import Report


@dataclass(frozen=True)
class SourceEdit:
    """A remedy as a change of the source or of the process's environment; where it has neither, or its place
    is not found, its page says how it is done by hand."""

    name: str
    title: str
    """One line for people."""
    change: Edit | None = None
    safety: str = "tolerance"
    """One of gobrrr.remedies.model.SAFETY."""
    environment: Callable[[], Mapping[str, str]] = dict
    """Variables for `gobrrr prove --env`."""
    second_to: tuple[str, ...] = ()
    """Remedies that bring the same and more: it is raced where none of them is."""

    def offer(self, files: Sequence[Source], source: Path, findings: Sequence[Finding]) -> Offer | None:
        """Return it for the findings that name it; None where it would change nothing."""
        edits = [at(self.change, places(findings, source))] if self.change is not None else []
        changed = {name: both for name, both in texts(files, edits, source).items() if not Path(name).is_absolute()}
        env = dict(self.environment())
        if not changed and not env:
            return None
        contents = {name: after.encode() for name, (_, after) in changed.items()}
        return Offer(self.name, findings[0].code if findings else "", diff(changed), contents, env, self.safety)


@dataclass(frozen=True)
class Offer:
    """An edit of this very program, for one of its findings."""

    name: str
    code: str
    """The finding's."""
    diff: str
    files: Mapping[str, bytes]
    """New contents by path relative to the program's folder."""
    env: Mapping[str, str]
    """Variables to set for the process."""
    safety: str


def _allocator() -> dict[str, str]:
    """LD_PRELOAD of the first one that is installed."""
    found = next((name for each in ("jemalloc", "tcmalloc_minimal", "tcmalloc") if (name := find_library(each))), "")
    return {"LD_PRELOAD": f"{found}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")} if found else {}


_EDITS = (
    SourceEdit("assistant_model", "lets a small model guess tokens that the large one then checks, several at a time"),
    SourceEdit("batched_prompts", "generates the answers to many prompts in one call", decoding.batched),
    SourceEdit("channels_last", "lays images and convolution weights out with channels last",
               BeforeTraining("{model}.to(memory_format=torch.channels_last)", "import torch")),
    SourceEdit("chunked_loss", "never builds the logits of a large vocabulary as a whole", layers.chunked_loss),
    SourceEdit("compile_frozen", "compiles a model that only infers, with its weights folded in as constants",
               lossy.alone("compile")),
    SourceEdit("compiled_optimizer", "compiles the update of the weights into a few kernels", updates.compiled_update,
               second_to=("fused_optimizer",)),
    SourceEdit("draft_decoding", "decodes JPEG pictures at a fraction of their size where they are made small next",
               safety="semantic"),
    SourceEdit("float16_autocast", "computes matrix products in float16 with scaled gradients (GPUs without bfloat16)"),
    SourceEdit("float32", "computes in float32 what came as float64", safety="semantic"),
    SourceEdit("fold_batch_norm", "folds batch norm into the convolution before it, in a model that only infers",
               lossy.alone("fold_batch_norm", ("BatchNorm", "torchvision", "timm"))),
    SourceEdit("foreach_optimizer", "updates parameters in a few calls over lists of tensors",
               SetKeyword(("Adam", "AdamW", "SGD", "RAdam", "NAdam", "RMSprop", "Adagrad"), "foreach", "True",
                          unless=("fused", "differentiable"), positional=6), second_to=("fused_optimizer",)),
    SourceEdit("freeze_unused", "computes no gradients for parameters that no optimizer holds", updates.frozen),
    SourceEdit("fused_attention", "computes attention that is written by hand in one fused kernel",
               layers.fused_attention),
    SourceEdit("fused_norm", "computes norms that are written by hand in one kernel each", layers.fused_norm),
    SourceEdit("gc_freeze", "keeps Python's garbage collector away from objects that stay", updates.collector_frozen,
               "exact"),
    SourceEdit("identity", "changes nothing: measures what trials scatter by on this machine", safety="exact",
               environment=lambda: {"SAME_PROGRAM": "1"}),
    SourceEdit("int8_draft", "has a copy of the model in int8 guess tokens, which the model checks (CPU)",
               decoding.SetInGenerate("assistant_model", "gobrrr.layers.int8_draft({model})")),
    SourceEdit("int8_dynamic", "computes linear layers of a model that only infers in 8 bits",
               lossy.alone("int8_dynamic", ("Linear", "transformers")), "semantic"),
    SourceEdit("key_value_cache", "keeps keys and values of the tokens that were read", decoding.cached),
    SourceEdit("no_grad_evaluation", "builds no graph where no backward follows", inference.without_graph),
    SourceEdit("no_sync", "sums gradients over the ranks once per update, not in each backward pass before it",
               accumulation.synced_once),
    SourceEdit("packing", "computes the sequences of a batch in fewer rows", safety="order"),
    SourceEdit("pad_vocabulary", f"makes the vocabulary's size a multiple of {updates.SIZE}", updates.padded_vocabulary,
               "semantic"),
    SourceEdit("prefetch", "copies each batch to the device while the one before it is computed on", updates.prefetched,
               "exact"),
    SourceEdit("preloaded_allocator", "replaces malloc by jemalloc or tcmalloc, where installed", safety="exact",
               environment=_allocator),
    SourceEdit("products_together", "computes linear layers that take the same input by one product",
               together.products_together),
    SourceEdit("prompt_lookup", "guesses tokens by what followed the last ones before, and checks several at a time",
               decoding.SetInGenerate("prompt_lookup_num_tokens", "10")),
    SourceEdit("set_to_none", "drops gradients in place of writing zeros over them", updates.dropped_gradients,
               "exact"),
    SourceEdit("sparse_gradient", "gives embeddings gradients of the rows that were looked up",
               updates.sparse_embeddings),
    SourceEdit("summed_together", "sums many tensors over the ranks in one collective", collectives.summed_together),
    SourceEdit("thread_affinity", "pins the threads of ops to cores of their own (CPU)", safety="exact",
               environment=lambda: {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}),
    SourceEdit("unchecked_distributions", "lets torch.distributions take its arguments unchecked",
               AddStatement("torch.distributions.Distribution.set_default_validate_args(False)"), "exact"),
)  # fmt: skip


def all_names() -> tuple[str, ...]:
    """Return the names of the edits, and of the idioms that a regular expression can rewrite."""
    return (*registry.edit_names(), *(idiom.name for idiom in idioms() if idiom.rewrite is not None))


def edit(name: str, options: Mapping[str, int] | None = None) -> SourceEdit:
    """The edit of a name or an idiom's, or the source form of a live remedy. Raises GobrrrError where there is none."""
    if found := next((each for each in _EDITS if each.name == name), None):
        return found
    known = next((each for each in idioms() if each.name == name), None)
    if known is not None and (rewrite := known.rewrite) is not None:
        return SourceEdit(name, known.says, Rewritten(rewrite.find, rewrite.put, rewrite.imports))
    remedy = registry.remedy(name)
    change = remedy.change_of_source(options or {})
    if change is None and not remedy.environment():
        raise GobrrrError(f"{name} has no form for the source", f"gobrrr remedies {name} says what it does")
    return SourceEdit(name, remedy.title, change, remedy.safety, remedy.environment)


def offers(
    report: Report, command: Sequence[str], source: Path, live: bool = False, named: Collection[str] = ()
) -> list[Offer]:  # fmt: skip
    """Return the edits of this program that its findings name, each once, in the order of the findings, and those that
    the user named; where `live`, those of remedies that act on a running program as well."""
    files = read(program_files(report, command, source))
    found: dict[str, Offer] = {}
    for name in dict.fromkeys((*(name for finding in report.findings for name in finding.remedies), *sorted(named))):
        options = registry.remedy(name).options(report) if live and name in registry.names() else {}
        with contextlib.suppress(GobrrrError):  # one that the source has no form for, or of others
            known = edit(name, options) if live or name in all_names() else None
            if known and (offer := known.offer(files, source, calling_for(name, report))):
                found[name] = offer
    return list(found.values())


def calling_for(name: str, report: Report) -> Sequence[Finding]:
    """Return the findings that name what helps."""
    return [finding for finding in report.findings if name in finding.remedies]


def placed(name: str, report: Report, source: Path) -> Edit | None:
    """Return an edit's change, at the lines of the findings that name it; None where it has none of the source."""
    change = edit(name).change
    return at(change, places(calling_for(name, report), source)) if change is not None else None


def places(findings: Sequence[Finding], source: Path) -> list[tuple[Path, int]]:
    """Return the files and lines that findings point to."""
    return [((source / span.file).resolve(), span.line) for finding in findings for span in finding.where]


def program_files(report: Report, command: Sequence[str], source: Path) -> list[Path]:
    """Return the program's files inside its folder: the script with what it imports, and where findings point to."""
    named = [file for file, _ in places(report.findings, source)]
    inside = [file for file in named if file.is_file() and file.is_relative_to(source.resolve())]
    return list(dict.fromkeys((*files_of(command, source), *inside)))
