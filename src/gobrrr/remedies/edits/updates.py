"""Edits of what training does beside the model: gradients that nobody reads, zeros, sparse rows, padded sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.forms import SetKeyword
from gobrrr.remedies.edits.source import Change, Source, may_be_true, stored_in
from gobrrr.remedies.edits.training import made_optimizers, parameters

MODELS = ("torch", "torchvision", "timm", "transformers", "torchaudio", "segmentation_models_pytorch")
"""Packages whose classes and functions give modules."""


CHANGES_OPTIONS = ("scheduler", "Scheduler", "LR(", "param_groups", "GradScaler")
"""Words of programs that set an optimizer's options while they train, or have another one call it."""


def frozen(source: Source, lines: Sequence[int]) -> list[Change]:
    """Take the gradients from what no optimizer holds: where one is made of a part's parameters alone."""
    made = made_optimizers(source)
    if not made or len({source.scope(node) for node in made}) > 1:
        return []
    *_, last = made
    owners = {owner for call in made.values() for owner in _owners(source, call)}
    names = [ast.unparse(targets[0]) for node, targets, _ in source.assignments() if node in made]
    if len(owners) != 1 or owners == {"*"} or not source.stands_alone(last):
        return []
    (owner,) = owners
    if owner not in ("", "self") and len(names) == len(made):  # an optimizer of a part of this model
        groups = ", ".join(f'*(group["params"] for group in {name}.param_groups)' for name in names)
        code = f"for p in {{*{owner}.parameters()}}.difference({groups}):\n    p.requires_grad_(False)"
        return [source.behind(last, code)]
    held = _made_of(source, made.values())
    others = [name for name in _modules(source, last) if name not in held]
    return [source.before(last, "\n".join(f"{name}.requires_grad_(False)" for name in others))] if others else []


def _made_of(source: Source, calls: Iterable[ast.expr]) -> set[str]:
    """All that calls are given, and what that is made of: a layer of a model that an optimizer gets is held with it."""
    found: set[str] = set()
    waiting = list(calls)
    while waiting:
        new = [each for each in _given(waiting.pop()) if ast.unparse(each) not in found]
        found |= set(map(ast.unparse, new))
        waiting += [value for each in new for value in source.names.values(each)]
    return found


def _given(node: ast.AST) -> Iterator[ast.expr]:
    """Names and attributes as they stand in an expression, and what methods are called of."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        method = isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Attribute)
        yield from _given(child.value if method and isinstance(child, ast.Attribute) else child)


def _owners(source: Source, call: ast.Call) -> Iterator[str]:
    """Owners of the parts that an optimizer is made of: 'model' of model.head.parameters() and what its named ones are
    chosen by, 'self' of self.head.parameters(), '*' of self.parameters(); empty for a model's own name."""
    first = parameters(call)
    kept = source.names.values(first) if first is not None else []
    inside = [node for each in (call, *kept) for node in ast.walk(each)]
    chosen = any(node.ifs for node in inside if isinstance(node, ast.comprehension))
    for node in inside:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, method = node.func.value, node.func.attr
        if method == "named_parameters" or (method == "parameters" and chosen):
            yield ast.unparse(owner)
        elif method == "parameters" and isinstance(owner, ast.Attribute):
            yield ast.unparse(owner.value)
        elif method == "parameters":
            yield "*" if ast.unparse(owner) == "self" else ""


def _modules(source: Source, before: ast.stmt) -> Iterator[str]:
    """Names that are given modules in the statement's function above it, and attributes of self in its class."""
    function = source.scope(before)
    for node, targets, value in source.assignments():
        inside = source.scope(node)
        own = isinstance(targets[0], ast.Attribute) and source.scope(inside) is source.scope(function)
        if (own or (inside is function and node.lineno < before.lineno)) and _is_module(source, value):
            yield ast.unparse(targets[0])


def _is_module(source: Source, value: ast.expr) -> bool:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if not isinstance(value.func.value, ast.Call):
            break
        value = value.func.value  # Net().eval()
    if not isinstance(value, ast.Call):
        return False
    origin = source.names.origin(value.func)
    own = next((node for node in source.nodes(ast.ClassDef) if node.name == last_name(value.func)), None)
    if own is not None:
        return any(re.search(r"(Module|Sequential|Model)$", ast.unparse(base)) for base in own.bases)
    is_made = origin.partition(".")[0] in MODELS and not re.search(r"(Loss|Config|Tokenizer\w*|Processor)\b", origin)
    return is_made and (not origin.startswith("torch.") or origin.startswith("torch.nn."))


def dropped_gradients(source: Source, lines: Sequence[int]) -> list[Change]:
    """Drop gradients in place of writing zeros: zero_grad(set_to_none=False), and `p.grad.zero_()` by hand."""
    found: list[Change] = []
    for call in source.calls(["zero_grad"]):
        given = [each.value for each in call.keywords if each.arg == "set_to_none"] or call.args[:1]
        found += [source.replacing(each, "True") for each in given if isinstance(each, ast.Constant)]
    for written in source.calls(["zero_"]):
        owner = written.func.value if isinstance(written.func, ast.Attribute) else None
        owner = owner.value if isinstance(owner, ast.Attribute) and owner.attr == "data" else owner
        alone = isinstance(statement := source.statement(written), ast.Expr) and statement.value is written
        if alone and isinstance(owner, ast.Attribute) and owner.attr == "grad":
            found.append(source.replacing(written, f"{source.code(owner)} = None"))
    return found


def compiled_update(source: Source, lines: Sequence[int]) -> list[Change]:
    """Compile the step of the one optimizer that a loop updates by; not where something sets its options from step to
    step, for each value would be compiled anew."""
    if "compiled_step" in source.text or any(word in each.text for each in source.program for word in CHANGES_OPTIONS):
        return []
    names = {ast.unparse(target) for node in made_optimizers(source) if isinstance(node, ast.Assign)
             for target in node.targets}  # fmt: skip
    steps = [call for call in source.calls(["step"])
             if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in names]  # fmt: skip
    if len(steps) != 1 or steps[0].args or steps[0].keywords or not (loops := source.loops(steps[0])):
        return []
    loop, [call] = loops[-1], steps
    own = ast.unparse(call.func.value)  # type: ignore[attr-defined]
    statement = source.statement(call)
    alone = isinstance(statement, ast.Expr) and statement.value is call and source.stands_alone(loop)
    if not alone or own in stored_in([loop]) or source.scope(loop) is not source.scope(call):
        return []
    changes = [source.before(loop, f"compiled_step = torch.compile({own}.step)"),
               source.replacing(call, "compiled_step()")]  # fmt: skip
    return source.with_helper("import torch", changes)


def collector_frozen(source: Source, lines: Sequence[int]) -> list[Change]:
    """Freeze what there is when the loop begins that a finding points into, or that trains; else behind an optimizer's
    making."""
    code = "gc.collect()\ngc.freeze()\natexit.register(gc.unfreeze)\ngc.set_threshold(100_000, 50, 100)"
    there = [node for node in source.nodes(ast.stmt) if node.lineno in lines] or source.calls(["backward"])
    loops = [each for node in there for each in source.loops(node)]
    made = [*made_optimizers(source)][:1]
    place = loops[-1] if loops else made[0] if made else None
    if place is None or "gc.freeze()" in source.text or not source.stands_alone(place):
        return []
    frozen = source.before(place, code) if loops else source.behind(place, code)
    return source.with_helper("import atexit\nimport gc", [frozen])


EMBEDDINGS = SetKeyword(("Embedding", "EmbeddingBag"), "sparse", "True", unless=("scale_grad_by_freq",), positional=5)
TAKE_SPARSE = ("SGD", "Adagrad")
"""Optimizers to which rows without a gradient are rows that stay, without momentum and weight decay."""


def sparse_embeddings(source: Source, lines: Sequence[int]) -> list[Change]:
    """Give embeddings sparse gradients, where all optimizers take them, and nothing clips."""
    made = [(each, call) for each in source.program for call in made_optimizers(each).values()]
    clips = source.program_calls("clip_grad_norm_", "clip_grad_value_")
    if not made or clips or not all(_takes_sparse(each, call) for each, call in made):
        return []
    return EMBEDDINGS(source, lines)


def _takes_sparse(source: Source, call: ast.Call) -> bool:
    states = [each.value for each in call.keywords if each.arg not in ("lr", "params", "eps", "foreach")]
    plain = source.names.is_from(call.func, ("torch",), TAKE_SPARSE)
    return plain and len(call.args) <= 2 and not any(map(may_be_true, states))


SIZE = 64
"""Multiple that a vocabulary is padded to (nanoGPT pads 50,257 to 50,304)."""
LEAST = 4096
"""Words from which a number that is called a vocabulary is one (proposed: sizes in published configurations would
settle it)."""
_VOCABULARY = re.compile(r"(?i)vocab|n_tokens$|num_tokens$|ntoken")


def padded_vocabulary(source: Source, lines: Sequence[int]) -> list[Change]:
    """Round numbers that are called a vocabulary's size up."""
    said = [(node.arg or "", node.value) for node in source.nodes(ast.keyword)]
    said += [(last_name(target), value) for _, targets, value in source.assignments() for target in targets]
    found: list[Change] = []
    for name, value in said:
        if isinstance(value, ast.Constant) and isinstance(value.value, int) and _VOCABULARY.search(name):
            if value.value >= LEAST and value.value % SIZE:
                found.append(source.replacing(value, str(-(-value.value // SIZE) * SIZE)))
    return found


def prefetched(source: Source, lines: Sequence[int]) -> list[Change]:
    """Put gobrrr.data.prefetch around the loader of a loop that moves each batch to one device."""
    for loop in source.nodes(ast.For):
        loader = loop.iter
        while isinstance(loader, ast.Call) and loader.args and last_name(loader.func) in ("enumerate", "tqdm"):
            loader = loader.args[0]
        devices = {each for body in loop.body for each in _devices(source, body)}
        spans = any(loop.lineno <= line <= (loop.end_lineno or 0) for line in lines) or not lines
        if spans and len(devices) == 1 and _is_loader(source, loader):
            code = f"gobrrr.data.prefetch({source.code(loader)}, {devices.pop()})"
            return source.with_helper("import gobrrr.data", [source.replacing(loader, code)])
    return []


def _is_loader(source: Source, node: ast.expr) -> bool:
    """Whether it is made as a DataLoader, or called one in a program that makes some."""
    made = source.names.values(node)
    if made:
        return any(isinstance(each, ast.Call) and last_name(each.func).endswith("Loader") for each in made)
    return last_name(node).lower().endswith("loader") and source.program_calls("DataLoader")


def _devices(source: Source, body: ast.stmt) -> Iterator[str]:
    for call in source.calls(("to", "cuda"), within=body):
        if last_name(call.func) == "cuda":
            yield ast.unparse(call.args[0]) if call.args else '"cuda"'
        elif call.args and not re.search(r"dtype|float|half|int\d|long|bool", ast.unparse(call.args[0])):
            yield ast.unparse(call.args[0])
