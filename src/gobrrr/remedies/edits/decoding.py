"""Edits of programs that generate text: prompts together in one call, keys and values kept."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.capture.source.statements import last_name
from gobrrr.remedies.edits.source import Change, Source, bound_in, may_be_true, names_in

GENERATE = "generate"
LENGTH = "max_new_tokens"
"""Option that a call in a loop must have to be batched: max_length would count padding."""
ONE_ONLY = ("prompt_lookup_num_tokens", "assistant_model", "streamer", "num_return_sequences", "negative_prompt_ids",
            "return_dict_in_generate", "num_beams", "prefix_allowed_tokens_fn", "assistant_early_exit",
            "custom_generate")  # fmt: skip
"""Options that a lookup does not allow."""
BATCHED = (LENGTH, "min_new_tokens", "do_sample", "temperature", "top_k", "top_p", "pad_token_id", "eos_token_id",
           "bos_token_id", "use_cache", "language", "task")  # fmt: skip
"""Options that see neither padding nor other rows: no other call is batched."""
PROMPT = (None, "input_ids", "inputs")
PURE = re.compile(
    r"(\w*_)?(tok|tokenizer|tokenize|processor|extractor|encode|decode)|apply_chat_template|dict|list|tuple|str|int|len"
    r"|range|enumerate|zip|sorted|reversed|tqdm|items|keys|values|split|strip|lower|upper|join|format|replace|to|cpu|cuda"
    r"|long|clone|view|reshape|unsqueeze|squeeze|tensor|as_tensor|from_numpy|cat|stack|ones_like|tolist|item|size|numel"
)
"""Calls that change nothing and give the same for the same: what a prompt and its loop may be made with."""
TAKES = ("print", "append", "extend", "add", "update", "write")
"""Calls that leave what they are given as it is."""


@dataclass(frozen=True)
class SetInGenerate:
    """Give calls of generate() a keyword, in programs that use transformers; `only_where` it has this value. In `value`
    {model} is what generate() is called on."""

    keyword: str
    value: str
    only_where: str = ""

    def __call__(self, source: Source, lines: Sequence[int] = ()) -> list[Change]:
        """Set it at the calls that a finding points to, or at all."""
        found = []
        for call in _calls(source, lines):
            given = {each.arg: each.value for each in call.keywords}
            there = given.get(self.keyword)
            model = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            kept = given.get("use_cache", ast.Constant(value=True))
            if "{model}" in self.value and ("(" in model or not may_be_true(kept)):
                continue  # written twice, it must be the same each time; and an assistant needs a cache
            if there is not None and self.only_where == source.code(there):
                found.append(source.replacing(there, self.value))
            elif not self.only_where and None not in given and not given.keys() & {self.keyword, *ONE_ONLY}:
                if not may_be_true(given.get("do_sample", ast.Constant(value=False))):
                    last = max(source.span(each)[1] for each in (*call.args, *call.keywords))
                    found.append((last, last, f", {self.keyword}={self.value.format(model=model)}"))
        return source.with_helper("import gobrrr.layers", found) if "{model}" in self.value else found


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
        if not isinstance(loop, ast.For) or not _in_every_turn(source, call, loop) or "prompts_now" in source.text:
            continue
        prompt = _prompt(call, loop, source.statement(call))
        assert isinstance(call.func, ast.Attribute)
        model, given = call.func.value, [each for each in call.keywords if each.arg not in PROMPT]
        names, samples = {each.arg for each in given}, [each.value for each in given if each.arg == "do_sample"]
        if prompt is None or LENGTH not in names or not names <= {*BATCHED} or any(map(may_be_true, samples)):
            continue
        fixed, own = names_in(model).union(*(names_in(each.value) for each in given)), names_in(loop.target)
        read = fixed | names_in(prompt) | names_in(loop.iter)
        changed = {*_bound(loop), *_touched(loop, call)} - source.modules() | {"sys"}  # its stdin waits for answers
        if fixed & own or read & changed or not _pure(prompt) or not _pure(loop.iter):
            continue
        code = (
            f"prompts_now, prompts_ahead = itertools.tee({ast.unparse(loop.iter)})\n"
            f"answers_ahead = gobrrr.data.generated({ast.unparse(model)}, ({ast.unparse(prompt)} "
            f"for {ast.unparse(loop.target)} in prompts_ahead){''.join(f', {ast.unparse(each)}' for each in given)})"
        )
        changes = [source.before(loop, code), source.replacing(loop.iter, "prompts_now"),
                   source.replacing(call, "next(answers_ahead)")]  # fmt: skip
        return source.with_helper("import itertools\nimport gobrrr.data", changes)
    return []


def _in_every_turn(source: Source, call: ast.Call, loop: ast.For) -> bool:
    """Whether each turn makes the call, and each prompt has its turn, whatever was answered before."""
    statement = source.statement(call)
    between = itertools.takewhile(lambda each: each is not statement, source.parents(call))
    some = (ast.BoolOp, ast.IfExp, ast.Compare, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    ends = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)
    plain = statement in loop.body and isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr))
    alone = source.stands_alone(loop) and all(isinstance(each, ast.Name) for each in bound_in(loop.target))
    return plain and alone and not loop.orelse and not any(
        [*(isinstance(each, some) for each in between), *(isinstance(each, ends) for each in ast.walk(loop))]
    )  # fmt: skip


def _prompt(call: ast.Call, loop: ast.For, statement: ast.stmt) -> ast.expr | None:
    """The prompt as an expression of what the loop is given; None where it is none of that alone."""
    first = [*call.args, *(each.value for each in call.keywords if each.arg in PROMPT)]
    if len(first) != 1 or isinstance(first[0], ast.Starred):
        return None
    value = first[0]
    bare = value.value if isinstance(value, ast.Attribute) else value
    if not isinstance(bare, ast.Name) or bare.id in names_in(loop.target):
        return value
    before = [each for each in loop.body[: loop.body.index(statement)] if isinstance(each, ast.Assign)]
    made = [each.value for each in before if [ast.unparse(to) for to in each.targets] == [bare.id]]
    if len(made) != 1 or _bound(loop).count(bare.id) != 1 or bare.id in _touched(loop, call):
        return None
    return ast.Attribute(made[0], value.attr, ast.Load()) if isinstance(value, ast.Attribute) else made[0]


def _pure(node: ast.AST) -> bool:
    every = list(ast.walk(node))
    calls = [each for each in every if isinstance(each, ast.Call)]
    return all(PURE.fullmatch(last_name(each.func)) for each in calls) and not any(
        isinstance(each, ast.NamedExpr) for each in every
    )


def _bound(loop: ast.For | ast.While) -> list[str]:
    """Names that a loop's body binds, or changes a part of, as often as it does."""
    bound = bound_in(*loop.body)
    return [name for each in bound for name in names_in(each.value if isinstance(each, ast.Subscript) else each)]


def _touched(loop: ast.AST, own: ast.Call) -> set[str]:
    """Names whose objects calls in a loop may change, but for one call."""
    calls = [each for each in ast.walk(loop) if isinstance(each, ast.Call) and each is not own]
    calls = [each for each in calls if not PURE.fullmatch(last_name(each.func))]
    owners = [_held(each.func) for each in calls if not isinstance(each.func, ast.Name)]
    given = [arg for each in calls if last_name(each.func) not in TAKES for arg in (*each.args, *each.keywords)]
    inside = set(ast.walk(own))
    names = (name for each in (*owners, *given) for name in ast.walk(each) if name not in inside)
    return {each.id for each in names if isinstance(each, ast.Name)}


def _held(node: ast.expr) -> ast.expr:
    """Return what a method of `x.y[i]` may change: x, and not i."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def kept_keys(source: Source, lines: Sequence[int]) -> list[Change]:
    """Give a model of transformers, called with all ids so far in each turn of a loop, its cache and the new ids."""
    if not _uses_transformers(source):
        return []
    for grown in source.calls(("cat", "concat", "concatenate")):
        statement, loop = source.statement(grown), next(iter(source.loops(grown)), None)
        if (
            not isinstance(loop, (ast.For, ast.While))
            or not isinstance(statement, ast.Assign)
            or not isinstance(statement.targets[0], ast.Name)
        ):
            continue
        ids = statement.targets[0].id
        parts = grown.args[0].elts if grown.args and isinstance(grown.args[0], (ast.Tuple, ast.List)) else []
        if len(parts) != 2 or not (isinstance(parts[0], ast.Name) and parts[0].id == ids):
            continue
        calls = [call for call in source.nodes(ast.Call, within=loop)
                 if len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id == ids
                 and not call.keywords and isinstance(call.func, (ast.Name, ast.Attribute))
                 and not PURE.fullmatch(last_name(call.func))]  # fmt: skip
        dims = [*grown.args[1:], *(each.value for each in grown.keywords)]
        trains = source.calls(("backward",), within=source.loops(grown)[-1])
        if len(calls) != 1 or _bound(loop).count(ids) != 1 or ids in _touched(loop, calls[0]) or trains:
            continue
        if [ast.unparse(each) for each in dims] not in (["1"], ["-1"]) or statement not in loop.body:
            continue
        if not _last_alone(source, calls[0], loop) or not source.stands_alone(loop):
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
    """Return the node that a result stands in, or its logits."""
    above = next(source.parents(node))
    return next(source.parents(above)) if isinstance(above, ast.Attribute) and above.attr == "logits" else above


def cached(source: Source, lines: Sequence[int]) -> list[Change]:
    """Keep keys and values: in calls of generate() that say not to, or in a loop that the program writes itself."""
    return SetInGenerate("use_cache", "True", "False")(source, lines) or kept_keys(source, lines)
