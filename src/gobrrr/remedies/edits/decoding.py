"""Edits of programs that generate text: prompts together in one call, keys and values kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gobrrr.remedies.edits.source import Change, Source, bound_in, may_be_true, names_in, stored_in

GENERATE = "generate"
LENGTH = "max_new_tokens"
"""Option that a call in a loop must have to be batched: max_length would count padding."""
ONE_ONLY = ("prompt_lookup_num_tokens", "assistant_model", "streamer", "num_return_sequences", "negative_prompt_ids",
            "return_dict_in_generate", "num_beams", "prefix_allowed_tokens_fn")  # fmt: skip
"""Options that a batch does not allow, or that make its rows something else."""


@dataclass(frozen=True)
class SetInGenerate:
    """Give calls of generate() a keyword, in programs that use transformers; `only_where` it has this value."""

    keyword: str
    value: str
    only_where: str = ""

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Set it at the calls that a finding points to, or at all."""
        found = []
        for call in _calls(source, lines):
            given = {each.arg: each.value for each in call.keywords}
            there = given.get(self.keyword)
            if there is not None and self.only_where == source.code(there):
                found.append(source.replacing(there, self.value))
            elif not self.only_where and None not in given and not given.keys() & {self.keyword, *ONE_ONLY}:
                if not may_be_true(given.get("do_sample", ast.Constant(value=False))):
                    last = max(source.span(each)[1] for each in (*call.args, *call.keywords))
                    found.append((last, last, f", {self.keyword}={self.value}"))
        return found


def _uses_transformers(source: Source) -> bool:
    return any("transformers" in each.modules() or each.imported("transformers") for each in source.program)


def _calls(source: Source, lines: Sequence[int]) -> list[ast.Call]:
    """Calls of generate() with arguments, those at these lines where any is."""
    if not _uses_transformers(source):
        return []
    methods = [each for each in source.calls((GENERATE,)) if isinstance(each.func, ast.Attribute)]
    calls = [each for each in methods if each.args or each.keywords]
    there = [each for each in calls if any(each.lineno <= line <= (each.end_lineno or 0) for line in lines)]
    return there or calls


def batched(source: Source, lines: Sequence[int]) -> list[Change]:
    """Have gobrrr.data.generated make what a loop over prompts asks generate() for, one prompt after the other."""
    for call in _calls(source, lines):
        loop = next(iter(source.loops(call)), None)
        statement = source.statement(call)
        if not isinstance(loop, ast.For) or loop.orelse or statement not in loop.body or not source.stands_alone(loop):
            continue
        prompt = _prompt(source, call, loop, loop.body.index(statement))
        assert isinstance(call.func, ast.Attribute)
        model, given = (
            call.func.value,
            [each for each in call.keywords if each.arg not in (None, "input_ids", "inputs")],
        )
        names = {each.arg for each in given}
        fixed = names_in(model).union(*(names_in(each.value) for each in given))
        changing = stored_in([*loop.body, *ast.walk(loop.target)])  # type: ignore[list-item]
        if prompt is None or LENGTH not in names or names & {*ONE_ONLY, "generation_config"} or fixed & changing:
            continue
        if any(may_be_true(each.value) for each in given if each.arg == "do_sample") or _ends_early(loop):
            continue
        options = "".join(f", {source.code(each)}" for each in given)
        code = (
            f"prompts_now, prompts_ahead = itertools.tee({source.code(loop.iter)})\n"
            f"answers_ahead = gobrrr.data.generated({source.code(model)}, ({prompt} for {source.code(loop.target)} in "
            f"prompts_ahead){options})"
        )
        changes = [source.before(loop, code), source.replacing(loop.iter, "prompts_now"),
                   source.replacing(call, "next(answers_ahead)")]  # fmt: skip
        return source.with_helper("import itertools\nimport gobrrr.data", changes)
    return []


def _ends_early(loop: ast.For) -> bool:
    """Whether later prompts may never be asked for, or depend on what was answered."""
    return any(isinstance(each, (ast.Break, ast.Return, ast.Yield, ast.Await)) for each in ast.walk(loop))


def _prompt(source: Source, call: ast.Call, loop: ast.For, at: int) -> str | None:
    """The prompt as an expression of the loop's own variables; None where it is none of them alone."""
    first = [*call.args, *(each.value for each in call.keywords if each.arg in (None, "input_ids", "inputs"))]
    if len(first) != 1 or isinstance(first[0], ast.Starred):
        return None
    value, own = first[0], {each.id for each in bound_in(loop.target) if isinstance(each, ast.Name)}
    bare = value.value if isinstance(value, ast.Attribute) else value
    if isinstance(bare, ast.Name) and bare.id not in own:  # made in a statement before
        made = [each.value for each in loop.body[:at] if isinstance(each, ast.Assign) and len(each.targets) == 1
                and isinstance(each.targets[0], ast.Name) and each.targets[0].id == bare.id]  # fmt: skip
        if len(made) != 1:
            return None
        behind = source.code(value)[len(bare.id) :]
        text, value = f"({source.code(made[0])}){behind}", made[0]
    else:
        text = source.code(value)
    changed = stored_in(loop.body) - own
    iterated = names_in(loop.iter) & stored_in(loop.body)
    grows = set(_changed_in(loop))
    used = names_in(value)
    return text if used & own and not used & changed and not iterated and not names_in(loop.iter) & grows else None


def _changed_in(loop: ast.For) -> Iterator[str]:
    """Names of lists that a method changes."""
    for each in ast.walk(loop):
        if isinstance(each, ast.Attribute) and each.attr in ("append", "extend", "insert", "pop", "remove", "clear"):
            if isinstance(each.value, ast.Name):
                yield each.value.id


def kept_keys(source: Source, lines: Sequence[int]) -> list[Change]:
    """Give a model of transformers, called with all ids so far in each turn of a loop, its cache and the new ids."""
    if not _uses_transformers(source):
        return []
    for grown in source.calls(("cat", "concat", "concatenate")):
        statement, loop = source.statement(grown), next(iter(source.loops(grown)), None)
        if loop is None or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        ids = statement.targets[0].id
        parts = grown.args[0].elts if grown.args and isinstance(grown.args[0], (ast.Tuple, ast.List)) else []
        if len(parts) != 2 or not (isinstance(parts[0], ast.Name) and parts[0].id == ids):
            continue
        calls = [call for call in source.nodes(ast.Call, within=loop)
                 if len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id == ids
                 and not call.keywords and isinstance(call.func, (ast.Name, ast.Attribute))]  # fmt: skip
        stored = [each for each in bound_in(loop) if isinstance(each, ast.Name) and each.id == ids]
        if (
            len(calls) != 1
            or len(stored) != 1
            or not _last_alone(source, calls[0], loop)
            or not source.stands_alone(loop)
        ):
            continue
        last = calls[0].args[0]
        changes = [source.before(loop, "keys_kept = transformers.DynamicCache()"),
                   source.replacing(last, f"{ids}[:, keys_kept.get_seq_length():], past_key_values=keys_kept, "
                                          "use_cache=True")]  # fmt: skip
        return source.with_helper("import transformers", changes)
    return []


def _last_alone(source: Source, call: ast.Call, loop: ast.stmt) -> bool:
    """Whether of the logits that a call gives nothing but the last one's are read: `.logits[:, -1]` at once or of the
    name that they get."""
    above = _around_logits(source, call)
    reads = [above]
    if isinstance(above, ast.Assign) and len(above.targets) == 1 and isinstance(above.targets[0], ast.Name):
        name = above.targets[0].id
        named = [each for each in source.nodes(ast.Name, within=loop) if each.id == name]
        reads = [_around_logits(source, each) for each in named if isinstance(each.ctx, ast.Load)]
    slices = [ast.unparse(each.slice).strip("()") if isinstance(each, ast.Subscript) else "" for each in reads]
    return bool(slices) and all(each.startswith((":, -1", "0, -1")) for each in slices)


def _around_logits(source: Source, node: ast.AST) -> ast.AST:
    """What a result stands in, or its logits."""
    above = next(source.parents(node))
    return next(source.parents(above)) if isinstance(above, ast.Attribute) and above.attr == "logits" else above


def cached(source: Source, lines: Sequence[int]) -> list[Change]:
    """Keep keys and values: in calls of generate() that say not to, or in a loop that the program writes itself."""
    return SetInGenerate("use_cache", "True", "False")(source, lines) or kept_keys(source, lines)
