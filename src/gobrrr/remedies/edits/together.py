"""The edit that computes linear layers of one input by one product, in programs that only infer."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.inference import TRAINS
from gobrrr.remedies.edits.source import Change, Source
from gobrrr.rules.compute.side_by_side import of_one_input

_HELPER = '''def outputs(x, weight, bias, sizes):
    """Outputs of several linear layers by one product."""
    return torch.nn.functional.linear(x, weight, bias).split(sizes, -1)


def each_alone(x, layers):
    """Outputs of layers, one after the other."""
    return [each(x) for each in layers]


def forget(name, owner, keys):
    """Let weights that were loaded be joined anew."""
    owner.__dict__.pop(name, None)


def join(owner, name, *layers):
    """Put the weights of linear layers one below the other, once; layers that do more than that stay as they are."""
    hooked = any(each._forward_hooks or each._forward_pre_hooks for each in layers)
    plain = not hooked and isinstance(owner, torch.nn.Module) and {*map(type, layers)} == {torch.nn.Linear}
    biases = [each.bias for each in layers if each.bias is not None] if plain else []
    if not plain or torch.is_grad_enabled() or len(biases) not in (0, len(layers)):
        return functools.partial(each_alone, layers=layers)
    weight, sizes = torch.cat([each.weight for each in layers]), [each.out_features for each in layers]
    made = functools.partial(outputs, weight=weight, bias=torch.cat(biases) if biases else None, sizes=sizes)
    owner.__dict__[name] = made
    owner.register_load_state_dict_post_hook(functools.partial(forget, name))
    return made'''
_NAMES = ("join", "outputs", "each_alone", "forget", "joined", "functools")


def products_together(source: Source, lines: Sequence[int]) -> list[Change]:
    """Compute a module's linear layers of one input together, at the lines of a finding or everywhere, in a program
    that changes no weights: they are put together when they are first called."""
    used = {getattr(node, "id", getattr(node, "arg", getattr(node, "name", ""))) for node in ast.walk(source.tree)}
    if source.program_calls(*TRAINS) or not used.isdisjoint(_NAMES):
        return []
    found: list[Change] = []
    for called in of_one_input(source.tree):
        statement, calls = called[0][0], [call for _, call in called]
        each = [call.generators[0].iter if isinstance(call, ast.ListComp) else call.func for call in calls]
        inner = [call.elt if isinstance(call, ast.ListComp) else call for call in calls]
        given = source.code(inner[0].args[0]) if isinstance(inner[0], ast.Call) else ""
        owners = {ast.unparse(layer.value) for layer in each if isinstance(layer, ast.Attribute)}
        names = [f"{last_name(layer)}_of_{given}" for layer in each]
        there = not lines or any(call.lineno <= line <= (call.end_lineno or 0) for call in calls for line in lines)
        if there and len(owners) == 1 and source.stands_alone(statement) and used.isdisjoint(names):
            (owner,), several = owners, isinstance(calls[0], ast.ListComp)
            kept = f'"_{"each_of_" if several else ""}{"_".join(map(last_name, each))}"'
            layers = ", ".join(("*" if several else "") + source.code(layer) for layer in each)
            code = f"joined = {owner}.__dict__.get({kept}) or join({owner}, {kept}, {layers})\n"
            code += f"{names[0]} = list(joined({given}))" if several else f"{', '.join(names)} = joined({given})"
            found.append(source.before(statement, code))
            found += [source.replacing(call, name) for call, name in zip(calls, names, strict=True)]
    return source.with_helper(f"import functools\n\n\n{_HELPER}", found)
