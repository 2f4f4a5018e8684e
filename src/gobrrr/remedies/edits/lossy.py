"""Edits that change the numbers of a model that only infers, to be tried behind a gate: forms, and their source.

A form is a plain library call where one does it, else a part of gobrrr.layers; parts of several forms come together in
the order of this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from gobrrr.remedies.edits.inference import TRAINS, WhereReady
from gobrrr.remedies.edits.program import diff, texts
from gobrrr.remedies.edits.source import Source
from gobrrr.units import several

FILE = "gobrrr-noted.json"
"""File in an arm's folder in which what was inserted leaves what it saw."""


class Facts(msgspec.Struct, frozen=True):
    """Facts that a run of the program noted of its model: gobrrr.layers.noted.note_run."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    ns: Annotated[int, msgspec.Meta(ge=0)]
    """Lower quartile of the model's calls."""
    calls: int
    whole_ns: Annotated[int, msgspec.Meta(gt=0)]
    """From where it was ready to the program's end."""
    layers: dict[str, int] = {}
    device: str = "cpu"
    capability: int = 0
    """Ten times the compute capability of a CUDA device."""
    torchao: bool = False
    times: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Time of the model as it was over its own, call by call; null where no call could be given to both."""

    @property
    def step_ns(self) -> int:
        """Time to compare runs by: of a call, where there were a few, else of all."""
        return self.ns if self.calls > FEW else self.whole_ns


FEW = 3
"""Calls of a model above which their quartile says how long one takes."""


@dataclass(frozen=True)
class Form:
    """A way to change numbers. `{keep}` in its code are the layers that stay, `{knob}` how far it goes."""

    name: str
    code: str = ""
    imports: tuple[str, ...] = ()
    takes: str = ""
    """Words of what it takes for itself: forms with one in common exclude each other."""
    layers: tuple[str, ...] = ()
    """Kinds of layers of which the model must have one."""
    on_cpus: bool = False
    """It is computed there alone."""
    needs: tuple[int, str] = (0, "")
    """The least capability, as Facts have it, and what for."""
    knobs: tuple[float, float, float] | None = None
    """How far it goes, first; the most and the least that it may, where a gate refuses or has room."""
    compiles: bool = False
    exact: bool = False
    """It changes rounding alone, and no layer has to stay."""
    simulated: str = ""
    """Code whose changed layers say how much each matters; empty: its own."""

    def unfit(self, facts: Facts) -> str:
        """Say why it is not tried for such a model; empty where it is."""
        if self.layers and not any(facts.layers.get(kind) for kind in self.layers):
            return f"the model has no {' or '.join(self.layers)} layer"
        if self.on_cpus and facts.device != "cpu":
            return "torch computes it on CPUs alone"
        if facts.capability < self.needs[0]:
            return f"{self.needs[1]}: no CUDA device of capability {self.needs[0] / 10:.1f}"
        if self.imports == _AO and not facts.torchao:
            return "torchao is not there for the program's Python: pip install 'gobrrr[lossy]'"
        return ""


_LINEARS = "lambda part, name: type(part) is torch.nn.Linear and name not in {keep}"
_DYNAMIC = (
    "{name: torch.ao.quantization.default_dynamic_qconfig for name, part in {model}.named_modules() "
    "if type(part) is torch.nn.Linear and name not in {keep}}"
)
_AO = ("torchao.quantization",)


def _ao(config: str) -> str:
    return f"torchao.quantization.quantize_({{model}}, torchao.quantization.{config}(), {_LINEARS})"


FORMS = (
    Form("fold_batch_norm",
         "{model} = torch.fx.experimental.optimization.fuse({model})", ("torch.fx.experimental.optimization",),
         layers=("batch norm",), exact=True),
    Form("low_rank",
         "{model} = gobrrr.layers.low_rank({model}, energy={knob}, keep={keep})", ("gobrrr.layers",), "rank",
         ("linear",), knobs=(0.9, 0.5, 0.999)),
    Form("sparse_2_4",
         "{model} = gobrrr.layers.two_of_four(gobrrr.layers.half_precision({model}), keep={keep})", ("gobrrr.layers",),
         "linear half", ("linear",), needs=(80, "2:4 sparsity is faster on tensor cores, unstructured nowhere")),
    Form("int8_dynamic",
         f"{{model}} = torch.ao.quantization.quantize_dynamic({{model}}, {_DYNAMIC}, torch.qint8, inplace=True)",
         ("torch.ao.quantization",), "linear", ("linear",), on_cpus=True),
    Form("int8_activations", _ao("Int8DynamicActivationInt8WeightConfig"), _AO,
         "linear compile", ("linear",), compiles=True),
    Form("int8_weights", _ao("Int8WeightOnlyConfig"), _AO, "linear compile", ("linear",), compiles=True),
    Form("int4_weights", _ao("Int4WeightOnlyConfig"), _AO,
         "linear compile", ("linear",), needs=(80, "torchao packs int4 for GPUs"), compiles=True),
    Form("fp8", _ao("Float8DynamicActivationFloat8WeightConfig"), _AO,
         "linear compile", ("linear",), needs=(89, "float8 is faster on tensor cores alone"), compiles=True),
    Form("static_int8",
         "{model} = gobrrr.layers.static_int8({model}, keep={keep})", ("gobrrr.layers",), "linear half rank compile",
         ("convolution", "linear"), on_cpus=True, simulated="{model} = gobrrr.layers.noted.simulated_int8({model})"),
    Form("half_precision",
         "{model} = gobrrr.layers.half_precision({model}, keep={keep})", ("gobrrr.layers",), "half"),
    Form("compile", takes="compile", compiles=True, exact=True),
)  # fmt: skip
"""In the order in which they are put on a model; tried are the cheap ones first, those that compile last."""


class Part(NamedTuple):
    """A form as it is applied: layers that stay, and how far it goes."""

    form: str
    keep: tuple[str, ...] = ()
    knob: float | None = None

    @property
    def told(self) -> str:
        """'int8_dynamic (without 3 layers)'."""
        said = [f"{self.knob:.3g} of the energy"] if self.knob is not None else []
        said += [f"without {several('layer', len(self.keep))}"] if self.keep else []
        return f"{self.form} ({', '.join(said)})" if said else self.form


Point = tuple[Part, ...]
"""Forms that are applied together; none: the program as it is."""


def name_of(point: Point) -> str:
    """'int8_dynamic (without 3 layers) + compile'."""
    return " + ".join(part.told for part in point) or "as it is"


def form(name: str) -> Form:
    """The form of a name. Raises KeyError."""
    return {each.name: each for each in FORMS}[name]


def statements(point: Point, facts: Facts | None = None) -> tuple[str, list[str]]:
    """Return the code of a point about `{model}`, and the modules that it imports."""
    used = sorted(point, key=lambda part: [each.name for each in FORMS].index(part.form))
    lines = [_code(form(part.form).code, part) for part in used if form(part.form).code]
    imports = [module for part in used for module in form(part.form).imports]
    if lines and facts is not None and facts.layers.get("attention"):
        lines.insert(0, "torch.backends.mha.set_fastpath_enabled(False)")  # it reads weights past the layers
    if any(form(part.form).compiles for part in used):
        lines += ["torch._inductor.config.freezing = True", "{model} = torch.compile({model})"]
        imports.append("torch._inductor.config")
    return "\n".join(lines), imports


def _code(code: str, part: Part) -> str:
    keep = f"{{{', '.join(map(repr, sorted(part.keep)))}}}"
    if not part.keep:
        for words, instead in ((_DYNAMIC, "{torch.nn.Linear}"), (" and name not in {keep}", ""), (", keep={keep}", "")):
            code = code.replace(words, instead)
    return code.replace("{keep}", keep).replace("{knob}", f"{part.knob or 0:.4g}")


def alone(name: str, of: tuple[str, ...] = ()) -> WhereReady:
    """Return a form as an edit by itself: for programs that nowhere train, and have one of the words `of` in them."""
    code, imports = statements((Part(name),))
    return WhereReady(code, _imports(*imports), TRAINS, of)


def _imports(*modules: str) -> str:
    return "\n".join(f"import {name}" for name in modules)


class Written(NamedTuple):
    """Files as they become, by path, and the diff."""

    files: dict[str, bytes]
    diff: str


def written(files: Sequence[Source], source: Path, point: Point, facts: Facts | None, noted: str = "") -> Written:
    """The program with a point. `noted`: what to insert for gobrrr beside it: "run", or "sensitivity" to see how much
    each layer matters. Empty where no place is found."""
    code, imports = statements(point, facts)
    if noted == "sensitivity":
        code = form(point[0].form).simulated or code.partition("\ntorch._inductor")[0]
    if noted:
        body = code.replace("{model}", "changed").splitlines()
        code = "\n    ".join(("def change_numbers(changed):", *body, "return changed"))
        code += f"\n{{model}} = gobrrr.layers.noted.note_{noted}({{model}}, change_numbers, {FILE!r})"
    modules = dict.fromkeys(("torch", *imports, *(["gobrrr.layers.noted"] if noted else [])))
    edit = WhereReady(code, _imports(*modules))  # a run says whether the program trains
    changed = texts(files, [edit], source) if code else {}
    inside = {name: both for name, both in changed.items() if not Path(name).is_absolute()}
    return Written({name: after.encode() for name, (_, after) in inside.items()}, diff(inside))
