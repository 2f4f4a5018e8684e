"""What would have made a program fit, each way with its bytes; those that are enough lead."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path

import msgspec

from gobrrr.recording.model.out_of_memory import Group, OutOfMemory
from gobrrr.rules.memory import smaller_inputs
from gobrrr.rules.memory.shortage import (
    Shortage,
    activations,
    crowded,
    groups,
    kept_by_container,
    spare,
    state_to_come,
    unseen,
)
from gobrrr.rules.memory.way import EXACT, Way, fits
from gobrrr.units import several, shape_text, share, size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FORM = 0.25
"""Share of what is missing that the failed result must be for its line's form to be told (proposed)."""
WORTH = 0.05
"""Share of what is alive from which kept data is told, and of what is missing from which a way is (proposed)."""
HALF = 0.5
HALVES = ("bfloat16", "float16")
LARGE_LAYER = 0.2
"""Share of the trained parameters from which a layer is told to be trained whole (proposed)."""
RETURNED = 0.8
"""Share of what nobody holds that comes back where freed blocks do (proposed: gpt2 at a batch of 32 held 4.9 GB, with
the variable 3.9)."""
LITTLE = 0.1
"""Share of the limit from which memory that nobody holds is told as a way (proposed)."""
INNER = 8
"""Kept results of one backward op from which its graph is of several inner steps (proposed: of more than a model's
layers in a row)."""
SCORES = ("softmax", "bmm", "mul", "div", "masked_fill", "native_dropout", "dropout", "add", "where", "baddbmm")
LOSSES = ("log_softmax", "nll_loss", "nll_loss_nd", "softmax")
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers that torch has a fused update of."""
ADAMS = ("Adam", "AdamW", "NAdam", "RAdam")


DROP = "drop what is used up, keep it smaller, or in a file"
HOLDERS = {
    "itertools.cycle": "it keeps every batch; loop over the loader anew (while True: yield from loader)",
    "forward hook ": "remove it when it is done (handle.remove()), or keep numbers",
    "lru_cache of ": "bound it (lru_cache(maxsize=1)), or compute the largest once and slice it",
}
"""What to do about holders of a known kind, by the begin of their name (capture.facts.owners)."""
SHARED = (
    Way(
        "micro_batch", "smaller batches; in training accumulate their gradients", exact="exact where the loss is a mean"
    ),
    Way("no_grad", "if it is no training: torch.no_grad() around it", exact=EXACT),
    Way("activation_checkpointing", "torch.utils.checkpoint around the model's blocks", exact=EXACT),
)
"""Ways whose bytes nobody knows: a log alone tells of the failure."""


def ways(oom: OutOfMemory, short: Shortage, line: str = "") -> list[Way]:
    """Return what would have saved memory: ways that are known not to be enough come last, else in the order of
    preference: what is wrong first, then what is exact, then what costs time or digits. `line`: the failed line's
    source."""
    if oom.kind == "worker":
        return list(_of_workers(oom))
    if not oom.alive:
        return list(_unmeasured(oom, short, line))
    found = [
        msgspec.structs.replace(way, fits=fits(way, oom, short)) for way in _ways(oom, short, line) if way.saves > 0
    ]
    found = [way for way in found if way.fits is not False or way.saves >= WORTH * max(short.missing or 0, short.asked)]
    by_size = {True: False, None: not oom.phase, False: True}  # outside of a step no way is nearer than another
    found.sort(key=lambda way: ((True, None, False).index(way.fits), -way.saves * by_size[way.fits]))
    return found


def _ways(oom: OutOfMemory, short: Shortage, line: str) -> Iterator[Way]:
    roles, graph = oom.roles(), oom.roles().get("activations", 0)
    kept = activations(oom) or graph
    no_grad = Way("no_grad", "run it under torch.no_grad(): nothing is kept for a backward pass", kept, exact=EXACT)
    yield from _outside(oom, short)
    # Images that are optimised through a frozen model ask for gradients in eval().
    of_inputs = "frozen parameters" in roles and "parameters" not in roles
    evaluates = bool(graph) and oom.training is False and oom.phase != "backward" and not (of_inputs or oom.learns)
    if evaluates and short.asked <= graph:
        yield no_grad
    yield from _kept_graphs(oom, graph)
    yield from _of_libraries(oom, short)
    yield from _left_behind(oom)
    shaped = list(smaller_inputs.of_shapes(oom, short))
    yield from shaped
    scales = kept + roles.get("variables", 0) + roles.get("forward activations", 0)
    of_data = {role: held for role, held in roles.items() if role in ("other tensors", "arrays")}
    rest = [held for role, held in roles.items() if role not in of_data]
    keeps_most = sum(of_data.values()) > max([unseen(oom), *rest])
    by_mistake = [g for role in of_data for g in groups(oom, role) if g.name.startswith(tuple(HOLDERS))]
    if keeps_most and by_mistake:
        yield from _kept_data(oom)
    yield from smaller_inputs.outlier(oom, short, scales)
    yield from smaller_inputs.padded(oom, short, scales)
    if keeps_most and not by_mistake:
        yield from _kept_data(oom)
    scores = _scores(oom, kept)
    form = None if scores or short.asked <= FORM * (short.missing or 0) else _form(line)
    written = [_of_form(form, short.asked)] if form is not None else []
    if form is not None and form.get("maps") and short.whose.startswith("the process"):
        written = []  # what is mapped counts for ulimit, though it takes no memory
    yield from written
    if evaluates and short.asked > graph:
        yield no_grad
    in_place = [] if written or shaped else list(smaller_inputs.in_place(oom, short, line))
    yield from in_place
    if not (written or shaped or in_place) and oom.phase not in ("backward", "optimizer"):
        yield from smaller_inputs.pieces(oom, short)
    if scores:
        yield Way("sdpa", "F.scaled_dot_product_attention: the same values without a score for each pair of tokens",
                  scores, exact="equal up to rounding")  # fmt: skip
    if logits := _logits(oom):
        yield Way("chunked_loss", "compute the loss in 8 pieces (or F.linear_cross_entropy): logits are never whole",
                  logits, exact="equal up to rounding")  # fmt: skip
    if oom.phase == "optimizer" and (oom.on_device or not oom.optimizers or oom.optimizers[0] in FUSED):
        yield from _in_update(oom)
    if nodes := smaller_inputs.whole_graph(oom):
        what = f"the whole graph of {nodes:,} nodes at once: sample neighbours (NeighborLoader), or checkpoint layers"
        yield Way("sampled_graph", what, round(HALF * (scales + short.asked)),
                  exact="samples give another gradient; checkpoints are exact")  # fmt: skip
    elif not smaller_inputs.pairs(oom):
        yield from smaller_inputs.split(oom, short, scales)
    if graph and oom.training and not oom.optimizers and not roles.get("gradients"):
        yield msgspec.structs.replace(no_grad, what=SHARED[1].what)
    yield from _checkpointed(oom, kept)
    if not keeps_most:
        yield from _kept_data(oom)
    if unseen(oom) > LITTLE * (short.limit or oom.process.resident or 0) and short.asked < (short.limit or math.inf):
        yield Way("return_freed", "MALLOC_MMAP_THRESHOLD_=65536 in the environment: what is freed goes back at once",
                  round(RETURNED * unseen(oom)), exact="exact; slower allocations")  # fmt: skip
    if oom.training and graph and not any(g.dtype in HALVES for g in groups(oom, "activations")):
        half = sum(g.num_bytes for g in groups(oom, "activations") if g.dtype == "float32") / 2
        yield Way("bf16_autocast", "torch.autocast(device, torch.bfloat16) around the forward",
                  round(half * kept / graph), exact="3 digits in place of 7")  # fmt: skip
    state = max(roles.get("optimizer state", 0), state_to_come(oom))
    yield from _trained_whole(oom, state)
    if "LBFGS" in oom.optimizers and (oom.history_size or 0) > 20 and state > 20 * roles.get("parameters", 0):
        yield Way("lbfgs_history", "LBFGS(history_size=10): it keeps pairs of vectors as large as the parameters",
                  round(0.9 * state), exact="another search, mostly as good")  # fmt: skip
    if state and any(name in ADAMS for name in oom.optimizers):
        yield Way("optimizer_8bit", "an 8-bit Adam (torchao.optim.AdamW8bit): its state takes a quarter",
                  round(0.75 * state), exact="another rounding of its state")  # fmt: skip
    yield from _in_backward(oom)
    fixed = roles.get("parameters", 0) + roles.get("gradients", 0) + state
    yield from _large_layer(oom, fixed)
    if oom.on_device and fixed:
        yield Way("offload", "shard or offload parameters and state (FSDP2 with CPU offload)", fixed // 2, exact=EXACT)


def _large_layer(oom: OutOfMemory, fixed: int) -> Iterator[Way]:
    """One parameter that holds most of the model, where the model is what fills memory."""
    first, held = next(iter(groups(oom, "parameters")), None), oom.roles().get("parameters", 0)
    if first is not None and first.num_bytes > HALF * held and fixed > HALF * sum(oom.roles().values()):
        part = share(first.num_bytes / held)
        what = f"{first.name} {shape_text(first.shape)} holds {part} of the parameters: a smaller layer"
        pooled = " (pool what goes into it)" if len(first.shape) == 2 and first.shape[1] > first.shape[0] else ""
        every = fixed + state_to_come(oom) + max(0, held - oom.roles().get("gradients", 0))
        yield Way("smaller_layer", what + pooled, round(0.9 * every * first.num_bytes / held), exact="another model")


def _left_behind(oom: OutOfMemory) -> Iterator[Way]:
    """Models, tables and lists of numbers that the program still holds."""
    roles = oom.roles()
    if oom.repeated > 1:
        model = sum(roles.get(role, 0) for role in ("parameters", "gradients", "optimizer state"))
        drop = "if earlier ones are done, drop them, with whatever refers to them"
        drop = "accelerator.free_memory() behind each" if "Accelerat" in oom.repeated_in else drop
        held = f", held by {oom.repeated_in}" if oom.repeated_in else ""
        yield Way("old_models", f"{oom.repeated} optimizers of equal models are alive{held}: {drop}",
                  round(model * (1 - 1 / oom.repeated)), exact=EXACT)  # fmt: skip
    yield from _replaced(oom)
    for group in groups(oom, "Python numbers"):
        what = (
            f"{prod(group.shape):,} numbers are Python objects in {group.name or 'lists'}: keep arrays, not .tolist()"
        )
        yield Way("arrays", what, round(group.num_bytes * 7 / 8), exact="exact in float32")


def _replaced(oom: OutOfMemory) -> Iterator[Way]:
    """Parameters that an optimizer alone still has, of the shape of a module's but for its rows: a table that was
    widened and handed to the optimizer anew."""
    of_modules = [g.shape for g in groups(oom, "parameters") if g.name not in oom.optimizers]
    old = [g for g in groups(oom, "parameters") if g.name in oom.optimizers and any(
        len(g.shape) == len(shape) > 1 and g.shape[1:] == shape[1:] for shape in of_modules)]  # fmt: skip
    shapes = {g.shape for g in old}
    held = [g for role in ("parameters", "gradients", "optimizer state") for g in groups(oom, role)
            if g.name in oom.optimizers and g.shape in shapes]  # fmt: skip
    if old:
        num, name = sum(g.count for g in old), old[0].name
        what = f"{name} holds {several('parameter', num)} that no module has: if replaced, make it anew, or drop them"
        yield Way("replaced_parameters", what, sum(g.num_bytes for g in held), exact=EXACT)


def _trained_whole(oom: OutOfMemory, state: int) -> Iterator[Way]:
    """Whole layers that are trained where most of the model is frozen: their gradients and state are what a fine-tuning
    was to spare."""
    roles, held = oom.roles(), oom.roles().get("parameters", 0)
    large = [g for g in groups(oom, "parameters") if held and g.num_bytes > LARGE_LAYER * held]
    if not roles.get("frozen parameters") or not large or len(large) == len(groups(oom, "parameters")):
        return
    part = sum(g.num_bytes for g in large) / held
    what = f"{' and '.join(g.name for g in large)} are {share(part)} of what is trained: freeze them, or train few rows"
    yield Way("freeze", what, round(part * (max(held, roles.get("gradients", 0)) + state)), exact="another training")


def _unmeasured(oom: OutOfMemory, short: Shortage, line: str) -> Iterator[Way]:
    if oom.kind == "killed":
        yield Way("less_in_memory", "fewer workers, data in files that are mapped, or a larger memory limit of the job")
        return
    yield from _outside(oom, short)
    if (form := _form(line)) is not None:
        yield msgspec.structs.replace(_of_form(form, 0), exact="")
    if oom.phase == "optimizer":
        yield from (msgspec.structs.replace(way, saves=0) for way in _in_update(oom))
    if oom.phase == "loading a file":
        yield Way("mapped_file", "torch.load(path, mmap=True, map_location='cpu')", exact=EXACT)
    split, no_grad, checkpoint = SHARED
    if oom.phase in ("forward", "backward") or (oom.kind == "device" and not oom.phase):
        yield split
    if oom.phase in ("forward", "backward"):
        yield checkpoint if oom.phase == "backward" else no_grad


def _outside(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """What is not the program's own tensors: other processes, fragmentation."""
    if not oom.on_device:
        return
    if held := crowded(oom):
        yield Way(
            "end_others", f"end what else runs on the device (nvidia-smi names it): {size(held)}", held, exact=EXACT
        )
    if short.asked and spare(oom) >= short.asked and "expandable_segments:True" not in " ".join(oom.settings.values()):
        yield Way("expandable_segments", "PYTORCH_ALLOC_CONF=expandable_segments:True: free blocks are joined",
                  spare(oom), exact=EXACT)  # fmt: skip


def _kept_graphs(oom: OutOfMemory, graph: int) -> Iterator[Way]:
    """Results of earlier steps that are kept."""
    if (held := kept_by_container(oom)) is not None:
        what = (
            "keep numbers, not tensors with a graph: loss.item()" if held.graph else "keep numbers, or write them away"
        )
        saves = graph * (1 - 1 / max(1, held.length)) if held.graph else held.length * held.storage_bytes
        yield Way("keep_numbers", f"{held.name}: {what}", round(saves), exact=EXACT)
    if oom.carried and oom.steps:
        what = f"{oom.carried} brings the graph of all steps before: detach it, or change it under torch.no_grad()"
        yield Way("detach_state", what, round(graph * (1 - 1 / (oom.steps + 1))),
                  exact="gradients end at the step, as is usual")  # fmt: skip
    if oom.gradient_graphs:
        what = "gradients keep their graph (create_graph=True): torch.autograd.grad(), or set every .grad to None after"
        yield Way("gradient_graphs", what, round(graph * (1 - 1 / ((oom.steps or 0) + 1))), exact=EXACT)
    doubled = [g for g in groups(oom, "activations") if g.op.endswith("_backward")]
    times = max((g.count for g in doubled), default=0)
    layers = sum(group.count for group in groups(oom, "parameters"))  # one pass has an op of a kind for each at most
    if times >= max(INNER, layers) and not oom.gradient_graphs:
        what = f"create_graph=True keeps the graphs of {times} inner steps: first-order gradients, or fewer steps"
        yield Way("first_order", what, round(graph * (1 - 1 / times)),
                  exact="the same where nothing learns through them, as in evaluation")  # fmt: skip
    for name, terms in oom.summed[:1]:
        yield Way("keep_numbers", f"add numbers to {name}: loss.item(), or loss.detach()",
                  round(graph * (1 - 1 / max(1, terms))), exact=EXACT)  # fmt: skip


def _of_workers(oom: OutOfMemory) -> Iterator[Way]:
    if "Bus error" in oom.text or "shared memory" in oom.text:
        yield Way("shared_memory", "give the container more shared memory (docker run --shm-size=8g)")
    yield Way("fewer_workers", "fewer workers, or a smaller prefetch_factor: each holds its batches")
    yield Way("arrays", "samples in one array or file, not in lists of Python objects: forked workers copy those")


def _in_update(oom: OutOfMemory) -> Iterator[Way]:
    """Temporaries of an update: of foreach, torch's default on devices, copies of all parameters; elsewhere two of the
    largest one."""
    if oom.on_device:
        what = "optimizer(..., foreach=False) or fused=True: foreach holds a copy of all that it updates"
        yield Way("no_foreach", what, oom.roles().get("parameters", 0), exact=EXACT)
        return
    sizes = _parameter_sizes(oom)
    if state_to_come(oom) and oom.asked in sizes:
        return  # what failed is the state itself, which is made before any temporary
    largest = max(sizes, default=0)
    what = "optimizer(..., fused=True): an update without temporaries as large as a parameter"
    yield Way("fused_optimizer", what, 2 * largest, exact="equal up to rounding")


def _parameter_sizes(oom: OutOfMemory) -> list[int]:
    """Return the bytes of one parameter of each group."""
    return [group.num_bytes // max(1, group.count) for group in groups(oom, "parameters")]


def _in_backward(oom: OutOfMemory) -> Iterator[Way]:
    """Gradients that are used up one by one, where a model has many parameters (PyTorch's tutorial
    optimizer_step_in_backward)."""
    sizes = _parameter_sizes(oom)
    held = oom.roles().get("parameters", 0)
    if held and oom.optimizers and oom.training and "LBFGS" not in oom.optimizers:
        what = "update each parameter in backward (register_post_accumulate_grad_hook), then free its gradient"
        yield Way("optimizer_in_backward", what, held - max(sizes, default=held),
                  exact="exact without clipping or accumulation")  # fmt: skip


def _checkpointed(oom: OutOfMemory, kept: int) -> Iterator[Way]:
    """Blocks that repeat (layers.*.): of each its input is kept, and one block's activations at a time."""
    families: dict[str, list[Group]] = {}
    for group in groups(oom, "activations"):
        prefix, star, _ = group.name.partition(".*")
        if star:
            families.setdefault(prefix, []).append(group)
    if not families or not oom.training:
        return
    name, members = max(families.items(), key=lambda item: sum(group.num_bytes for group in item[1]))
    num = max(group.count for group in members)
    each = [group.num_bytes / max(1, group.count) for group in members]
    inside = sum(group.num_bytes for group in members) * kept / max(1, oom.roles().get("activations", 0))
    smallest = min((size for size in each if size > 0.02 * sum(each)), default=0.0)
    exact = "gradients exact, BatchNorm's statistics not" if oom.batch_norm else EXACT
    if num > 1:
        what = f"torch.utils.checkpoint around each of {name}.*: computed again in backward"
        yield Way("activation_checkpointing", what, round(inside - num * smallest - inside / num),
                  exact=f"{exact}; a third more computing")  # fmt: skip


def _scores(oom: OutOfMemory, kept: int) -> int:
    """Return the bytes of attention scores (..., length, length) among the activations."""
    found = [group for group in groups(oom, "activations") if len(group.shape) in (3, 4) and group.op in SCORES
             and group.shape[-1] == group.shape[-2] >= 64 and prod(group.shape[:-2]) > 1]  # fmt: skip
    # Dropout on the CPU keeps its mask by a product, and SDPA builds the scores for it, too.
    masked = any(group.op in ("mul", "native_dropout") for group in found) and not oom.on_device
    if masked or not any(group.op == "softmax" for group in found):
        return 0
    return round(sum(group.num_bytes for group in found) * kept / max(1, oom.roles().get("activations", 0)))


def _logits(oom: OutOfMemory) -> int:
    """Return the bytes that a loss in pieces saves: log-probabilities and the logits' gradient beside them."""
    found = [group for group in groups(oom, "activations") if group.op in LOSSES and len(group.shape) >= 2
             and group.shape[-1] >= 4096 and group.shape[-1] != group.shape[-2]]  # fmt: skip
    whole = max((group.num_bytes // max(1, group.count) for group in found), default=0)
    if not whole and oom.asked and oom.function in ("cross_entropy", "log_softmax", "nll_loss"):
        whole = oom.asked
    return round(whole * (3 if oom.phase in ("forward", "") else 2) * 7 / 8)


def _kept_data(oom: OutOfMemory) -> Iterator[Way]:
    for role, kind in (("other tensors", "tensor"), ("arrays", "array")):
        holders: dict[str, list[Group]] = {}
        for group in groups(oom, role):
            holders.setdefault(group.name, []).append(group)
        name, held = max(holders.items(), key=lambda item: sum(g.num_bytes for g in item[1]), default=("", []))
        num_bytes, shown = sum(g.num_bytes for g in held), min((g.shown for g in held), default=1.0)
        if num_bytes <= WORTH * sum(oom.roles().values()):
            continue
        what = f"{several(kind, sum(g.count for g in held))} in {name or 'the program'}"
        if shown < HALF:
            yield Way("copy_views", f"{what} are kept by views of {share(shown)} of them: keep .clone()",
                      round(num_bytes * (1 - shown)), exact=EXACT)  # fmt: skip
        else:
            instead = next((words for start, words in HOLDERS.items() if name.startswith(start)), DROP)
            yield Way("free_references", f"{what}: {instead}", num_bytes)


def _of_libraries(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """What a library keeps, or makes whole, that it can be told not to."""
    roles = oom.roles()
    for keeper in _known("library_keepers.toml")["keeper"]:
        holders = [group.name for group in groups(oom, "other tensors")] if "holder" in keeper else oom.libraries
        is_there = any(re.search(str(keeper.get("holder") or keeper["function"]), each) for each in holders)
        if is_there and not any(re.search(str(keeper.get("without") or "$^"), each) for each in oom.libraries):
            whole = short.asked + sum(roles.get(role, 0) for role in ("forward activations", "variables"))
            held = whole if keeper["role"] == "asked" else roles.get(str(keeper["role"]), 0) + short.asked
            yield Way(str(keeper["name"]).replace(" ", "_"), str(keeper["what"]),
                      round(held * (1 - float(keeper["keeps"]))), exact=str(keeper["exact"]))  # fmt: skip
            return


@cache
def _known(file: str) -> dict[str, list[dict[str, str | float]]]:
    """The tables of a file beside this one."""
    return tomllib.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))


def _form(line: str) -> dict[str, str | float] | None:
    """Return the known form that a line is written in."""
    code = line.partition("#")[0]
    return next((form for form in _known("large_results.toml")["form"] if re.search(str(form["form"]), code)), None)


def _of_form(form: dict[str, str | float], asked: int) -> Way:
    name = str(form["name"]).replace(" ", "_")
    what = f"{form['why']} {form['instead']}"
    return Way(name, what, round(asked * (1 - float(form["keeps"]))), exact=str(form.get("exact", "the same values")))
