"""Which input, batch or shape would have to be another for a program to fit?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from gobrrr.recording.model.out_of_memory import OutOfMemory
from gobrrr.rules.memory.shortage import Shortage, groups, in_backward
from gobrrr.rules.memory.way import EXACT, Way
from gobrrr.units import shape_text, share

FREED = 0.25
"""Share of a micro-batch's activations that the host's allocator keeps in pieces when they are freed (proposed: 180 of
1,016 MB with blocks of 32 MiB, which glibc keeps in its heap)."""
MOST_SPLITS = 1024
"""Micro-batches of a batch at most."""
OUTLIER = 4.0
"""Times as large as inputs before from which one is told to be larger (proposed)."""
ROWS = 2_048
"""Rows from which a value for each pair is a reason (proposed: 16 MiB in float32)."""
WIDTHS = (2, 4, 8)
"""Bytes of a value."""
LARGE_GRAPH = 1_000
"""Nodes from which a graph is one that can be sampled, and fewer than its edges (proposed)."""
PADDED = 0.25
"""Share of a mask that is true below which padding is a reason (proposed)."""
NARROW = {"uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "int16": 2}
"""Bytes of a value of types that are often made wider."""
LONG = 65_536
"""Length from which a single sample is long (proposed: beyond vocabularies and usual contexts)."""
FAR_LARGER = 4
"""Times its input from which a result is one that can be made in pieces (proposed)."""


def whole_graph(oom: OutOfMemory) -> int:
    """Return the nodes of a graph that the model is given whole: rows of numbers beside (2, edges); 0 for others, and
    for batches of the graphs that a data set has."""
    tables = [each for each in oom.inputs if len(each.shape) == 2]
    edges = {each.shape[1] for each in tables if _are_edges(each.shape, each.dtype)}
    nodes = [each.shape[0] for each in tables if each.dtype.startswith("float") and each.shape[0] not in (1, 2, *edges)]
    several = any(_are_edges(g.shape, g.dtype) and g.count > 1 for g in groups(oom, "other tensors"))
    most = max(nodes, default=0)
    return most if edges and not several and LARGE_GRAPH <= most < max(edges) else 0


def _are_edges(shape: tuple[int, ...], dtype: str) -> bool:
    return len(shape) == 2 and dtype == "int64" and shape[0] == 2 < shape[1]


def outlier(oom: OutOfMemory, short: Shortage, scales: int) -> Iterator[Way]:
    """An input far larger than those before."""
    for each in oom.inputs if oom.of_model else ():  # else they are any variables
        like = [use for use in oom.usual if use.dtype == each.dtype and len(use.shape) == len(each.shape)]
        before = max(like, key=lambda use: prod(use.shape), default=None)
        times = prod(each.shape) / max(1, prod(before.shape)) if before is not None else 0.0
        if before is not None and times >= OUTLIER:
            rows = sum(g.num_bytes for g in groups(oom, "other tensors") if g.shape[:1] == each.shape[:1])
            yield Way("large_input", f"{each.name} {shape_text(each.shape)} is {times:.0f} times as large as those "
                      f"before ({shape_text(before.shape)}): crop it, leave it out, or compute it in pieces",
                      round((scales + rows + short.asked + in_backward(oom)) * (1 - 1 / times)),
                      exact="other data, or borders between pieces")  # fmt: skip
            return


def of_shapes(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """What the shapes say: a column and a row that broadcast, pairs of all rows, an array in a wider type."""
    columns = {each.shape[0]: each for each in oom.inputs if len(each.shape) == 2 and each.shape[1] == 1}
    for row in oom.inputs:
        num = row.shape[0] if len(row.shape) == 1 else 0
        if (column := columns.get(num)) and short.asked in [num * num * width for width in WIDTHS]:
            yield Way("same_shapes", f"{column.name} {num}x1 and {row.name} {num} broadcast to {num}x{num}: give both "
                      "one shape (squeeze(-1))", short.asked, exact="another result: what was meant")  # fmt: skip
            return
    if num := pairs(oom):
        roles = ("activations", "variables")
        whole = [g.num_bytes for role in roles for g in groups(oom, role) if g.shape == (num, num)]
        yield Way("fewer_pairs", f"a value for each pair of {num} rows: compute blocks of rows, or sample pairs",
                  round(0.9 * (short.asked + sum(whole))), exact="exact in blocks that are checkpointed")  # fmt: skip
    said = re.search(r"array with shape \(([\d, ]+)\) and data type (\w+)", oom.text)
    if said is not None:
        shape = tuple(int(number) for number in said[1].split(",") if number.strip())
        same = [g for role in ("variables", "arrays") for g in groups(oom, role) if prod(g.shape) == prod(shape)]
        times = short.asked * same[0].count / max(1, same[0].num_bytes) if same else 0.0
        if times > 1:
            what = f"{same[0].name or 'the array'} as {said[2]} is {times:.0f} times as large"
            yield Way("keep_type", f"{what}: keep {same[0].dtype}, and convert each batch where it is used",
                      short.asked, exact="the same values")  # fmt: skip
    else:
        yield from _of_narrow(oom, short)


def _of_narrow(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """Yield the way to keep the type of data that the failed line converts as a whole to a wider one."""
    for group in (g for role in ("arrays", "other tensors", "variables") for g in groups(oom, role)):
        elements = group.num_bytes // NARROW.get(group.dtype, group.num_bytes + 1)
        near = (
            abs(short.asked - elements * width) <= 0.01 * short.asked for width in WIDTHS[1:]
        )  # the last one is new
        wide = bool(short.asked) and any(near)
        if wide and short.asked > group.num_bytes:
            what = (
                f"{group.name or 'the data'}, {group.dtype}, is {short.asked / group.num_bytes:.0f} times as large here"
            )
            yield Way("keep_type", f"{what}: keep {group.dtype}, and convert each batch where it is used",
                      short.asked, exact="the same values")  # fmt: skip
            return


def in_place(oom: OutOfMemory, short: Shortage, line: str) -> Iterator[Way]:
    """A result as large as one of the line's own variables, of which the line makes another copy."""
    code = line.partition("#")[0]
    for each in oom.inputs if not oom.model and short.asked else ():
        name = re.escape(each.name)
        written = re.search(rf"\b{name}\s*[-+*/]|[-+*/]\s*{name}\b(?!\s*[.\[(])", code)
        if each.num_bytes == short.asked and each.dtype.startswith("float") and written:
            what = f"{each.name} is copied as a whole: change it in place ({each.name} -= ...; {each.name} /= ...)"
            yield Way("in_place", what, short.asked, exact="exact; it is changed itself")
            return


def padded(oom: OutOfMemory, short: Shortage, scales: int) -> Iterator[Way]:
    """Rows that are padded to a longest one, of which a mask says how little is real."""
    for name, (rows, length), real in oom.masks:
        like = [g for role in ("forward activations", "activations", "variables") for g in groups(oom, role)]
        wide = [g for g in like if rows in g.shape and length in g.shape and g.dtype != "bool"]
        if real < PADDED and 1 < rows != length and wide:
            what = f"{share(real)} of {name} {rows}x{length} is real: cap the length (max_num_nodes=, max_length=), or "
            yield Way("padding", what + "batch by length", round((scales + short.asked) * (1 - 2 * real)),
                      exact="exact where batches go by length")  # fmt: skip
            return


def pieces(oom: OutOfMemory, short: Shortage) -> Iterator[Way]:
    """A result far larger than what it is made of, for some rows of that at a time; a model's input is split as a
    batch."""
    if oom.model:
        return
    for each in oom.inputs:
        rows = each.shape[0] if each.shape and FAR_LARGER * each.num_bytes < short.asked else 1
        powers = (2**n for n in range(1, rows.bit_length()))
        parts = next((parts for parts in powers if short.asked * (1 - 1 / parts) >= short.needed), 0)
        if parts and any(short.asked % (rows * width) == 0 for width in WIDTHS):
            what = f"compute it for {max(1, rows // parts)} of the {rows} rows of {each.name} at a time"
            yield Way("pieces", what, round(short.asked * (1 - 1 / parts)), exact="exact where rows do not mix")
            return


def pairs(oom: OutOfMemory) -> int:
    """Return the number of rows of which each pair has a value in what failed or is kept; 0 where none has."""
    made = [g.shape for role in ("variables", "forward activations") for g in groups(oom, role)]
    tables = {shape[0] for shape in made if len(shape) == 2 and 1 < shape[1] < shape[0]}  # of one value for each row
    rows = {each.shape[0] for each in oom.inputs if each.shape} | tables
    rows = {num for num in rows if num >= ROWS}
    kept = {g.shape[0] for g in groups(oom, "activations") if len(g.shape) == 2 and g.shape[0] == g.shape[1]}
    asked = {num for num in rows if oom.asked in [num * num * width for width in WIDTHS]}
    # A layer as wide as the batch is long has as large a result: its bias or its weight tells.
    wide = {g.shape[0] for g in groups(oom, "parameters") if g.shape and set(g.shape) == {g.shape[0]}}
    return max((rows & (kept | asked)) - wide, default=0)


def split(oom: OutOfMemory, short: Shortage, scales: int) -> Iterator[Way]:
    """The same batch in smaller parts. A result that failed scales with the batch as activations do."""
    sizes = [each.shape[0] for each in oom.inputs if each.shape and each.shape[0] > 1]
    kept = next((group.shape[0] for group in groups(oom, "activations") if group.shape), 0)
    batch = kept if kept in sizes else next(iter(sizes), 0)
    # Caches of keys and values, say: what is not the model's and has as many rows.
    rows = sum(g.num_bytes for g in groups(oom, "other tensors") if g.shape and g.shape[0] == batch)
    parts = scales + in_backward(oom) + short.asked + (rows if oom.phase == "evaluation" else 0)
    if not batch and oom.of_model and oom.phase in ("forward", "evaluation"):
        yield from _one_sample(oom, short, parts)
    if not batch or oom.phase not in ("forward", "evaluation", "backward"):
        return
    each = 1.0 if oom.on_device else 1 + FREED
    sizes = [-(-batch // 2**n) for n in range(1, MOST_SPLITS.bit_length()) if 2**n < 2 * batch]
    is_enough = (n for n in sizes if short.missing is None or parts * (1 - each * n / batch) >= short.needed)
    smaller = next(is_enough, next(iter(sizes), batch))
    if smaller >= batch:
        return
    saves = round(parts * (1 - smaller / batch))
    of_graphs = any(_are_edges(each.shape, each.dtype) for each in oom.inputs)
    if oom.training is False or not oom.optimizers:
        grows = bool(oom.steps) and "activations" in oom.roles()  # graphs that nobody frees: it only dies later
        what = f"batches of {smaller} in place of {batch}"
        if of_graphs:
            what = f"1/{-(-batch // smaller)} of the graphs at a time"
        yield Way("smaller_batch", what, saves, False if grows else None, EXACT)
        return
    exact = "not exact: BatchNorm sees smaller batches" if oom.batch_norm else "exact where the loss is a mean"
    what = micro_batches(batch, smaller)
    if of_graphs:
        what = f"micro-batches of 1/{-(-batch // smaller)} of the graphs, gradients accumulated"
    yield Way("micro_batch", what, saves, exact=exact)


def _one_sample(oom: OutOfMemory, short: Shortage, parts: int) -> Iterator[Way]:
    """Yield the way to compute one long sample in pieces of its length: results are as long as it is."""
    longest = max(oom.inputs, key=lambda each: max(each.shape, default=0), default=None)
    length = max(longest.shape, default=0) if longest is not None else 0
    counts = (2**n for n in range(1, 10))
    enough = next((n for n in counts if parts * (1 - 1 / n) >= short.needed), 0)
    if longest is not None and len(longest.shape) <= 3 and length >= LONG and enough:
        what = f"{shape_text(longest.shape)} is one sample: compute it in {enough} or more pieces of its length"
        yield Way("pieces_of_sample", what, round(parts * (1 - 1 / enough)), exact="borders between pieces differ")


def micro_batches(batch: int, smaller: int) -> str:
    """'4 micro-batches of 16, gradients accumulated, in place of 64'."""
    return f"{-(-batch // smaller)} micro-batches of {smaller}, gradients accumulated, in place of {batch}"
