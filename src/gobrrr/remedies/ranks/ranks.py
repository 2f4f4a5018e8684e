"""Remedies of a job of several ranks: arguments of the wrapper that sums gradients or gathers weights."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from gobrrr.recording.model.facts import Wrapper
from gobrrr.remedies.edits.forms import SetKeyword
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report

MIB = 1 << 20
DDP, FSDP = "torch.nn.parallel:DistributedDataParallel.__init__", "torch.distributed.fsdp:fully_shard"
SEARCH = 0.1
"""Most of the step that a search of the graph for unused parameters is taken to hold (proposed)."""
SHARE = {"bucket_views": 0.1, "static_graph": 0.1, "bf16_gradients": 0.5}
"""Part of exposed communication that each may save: copies into buckets and back, rebuilt buckets, half of the bytes
(proposed)."""


class AsArgument(Remedy):
    """Gives each call of a wrapper one argument, where the program gives another value or none."""

    keyword: ClassVar[str] = ""
    function: ClassVar[str] = DDP
    """Module and name of what is called."""

    def __init__(self, name: str, title: str, keyword: str, wanted: int, function: str = DDP, **more: object) -> None:
        self._wanted = wanted  # True and False are numbers too
        call = "DistributedDataParallel(model" if function == DDP else "fully_shard(block"
        vars(self).update({
            "name": name, "title": title, "keyword": keyword, "function": function,
            "by_hand": f"{call}, {keyword}={wanted})",
            "edit": SetKeyword((call.partition("(")[0],), keyword, str(wanted)), **more,
        })  # fmt: skip

    def probe(self) -> str:
        import torch

        return "" if torch.distributed.is_available() else "this torch has no torch.distributed"

    def wanted(self) -> Any:
        """Return the argument to give."""
        return self._wanted

    def is_pointless(self, report: Report) -> bool:
        """Return True for one rank, and where all wrappers have the argument; a gatherer of weights tells no facts."""
        is_other = bool(report.wrappers) if self.function == FSDP else all(map(self.holds, report.wrappers))
        return (report.world_size or 1) < 2 or is_other

    def holds(self, wrapper: Wrapper) -> bool:
        """Return True where a wrapper has the argument."""
        return bool(getattr(wrapper, self.keyword) == self._wanted)

    def predicts(self, report: Report) -> Saving:
        """Return its part of what findings say; of a search, which is no communication, a share of the step."""
        found, part = super().predicts(report), SHARE.get(self.name, 1.0)
        if self.keyword == "find_unused_parameters":
            wall = float(report.step.plain_wall_ns)
            return Saving(0.0, 0.5 * SEARCH * wall, SEARCH * wall)
        return Saving(0.0, part * found.expected_ns, part * found.ceiling_ns)

    def apply(self, seams: Seams) -> None:
        change_calls(seams, self.function, self._changed(seams))

    def _changed(self, seams: Seams) -> Callable[[inspect.BoundArguments], None]:
        def change(given: inspect.BoundArguments) -> None:
            wanted, default = self.wanted(), given.signature.parameters[self.keyword].default
            before = given.arguments.get(self.keyword, default)
            before = 25 if self.keyword == "bucket_cap_mb" and before is None else before
            if before == wanted or (type(wanted) is int and before is not None and before > wanted):
                seams.declined(self.name, f"{self.keyword} is {before} already")
                return
            given.arguments[self.keyword] = wanted
            seams.applied(self.name, f"{self.keyword} was {before}")

        return change


class BucketSize(AsArgument):
    """bucket_cap_mb of every DistributedDataParallel: `mib`, else 25, torch's own."""

    takes: ClassVar[dict[str, tuple[int, int]]] = {"mib": (1, 4096)}

    def wanted(self) -> int:
        return self.option("mib") or self._wanted

    def holds(self, wrapper: Wrapper) -> bool:
        return wrapper.bucket_bytes >= self._wanted * MIB


class Bf16Gradients(AsArgument):
    """torch's bf16_compress_hook on every DistributedDataParallel: half of the bytes, sums in bfloat16."""

    def probe(self) -> str:
        import torch

        has = torch.distributed.is_available() and torch.cuda.is_available() and torch.distributed.is_nccl_available()
        return super().probe() or ("" if has else "torch's hook for bfloat16 needs a GPU with NCCL")

    def holds(self, wrapper: Wrapper) -> bool:
        return False

    def apply(self, seams: Seams) -> None:
        def hook(wrapper: Any) -> None:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

            wrapper.register_comm_hook(None, bf16_compress_hook)
            seams.applied(self.name)

        change_calls(seams, self.function, lambda given: None, hook)


def change_calls(
    seams: Seams, function: str, change: Callable[[inspect.BoundArguments], None],
    made: Callable[[Any], None] = lambda _: None,
) -> None:  # fmt: skip
    """Have `change` set the arguments of calls of a function ("module:name"), and `made` see the first of them behind
    the call. A call that does not fit the function's signature fails as it would by itself."""
    module, _, name = function.partition(":")
    *owner, name = name.split(".")
    place = functools.reduce(getattr, owner, __import__(module, fromlist=["_"]))
    plain = getattr(place, name)
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def changed(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return plain(*args, **kwargs)
        change(given)
        found = plain(*given.args, **given.kwargs)
        try:
            made(args[0] if args else None)
        except Exception as error:
            seams.give_up(error)
        return found

    seams.replace(place, name, changed)


ROWS = (
    AsArgument(
        "bucket_views", "lets gradients be views of the buckets that go around the ranks", "gradient_as_bucket_view",
        True, saves_memory=True, safety="tolerance",
        unseen="gradients cannot be replaced or detached in place, and those kept for a later step are written over",
    ),
    AsArgument(
        "gathered_weights", "keeps the weights that FSDP2 gathers for forward until backward needs them",
        "reshard_after_forward", False, FSDP, safety="tolerance",
        unseen="each rank holds the whole weights until backward; a forward just before an update leaves old ones",
    ),
    AsArgument(
        "no_unused_search", "does not search each step's graph for parameters without a gradient",
        "find_unused_parameters", False, safety="tolerance",
        unseen="a later step that leaves a parameter unused would end in an error",
    ),
    AsArgument(
        "static_graph", "lets DistributedDataParallel learn once which gradients come and when", "static_graph", True,
        safety="semantic", conflicts=("no_unused_search",),
        unseen="a later step that uses other parameters would be wrong or end in an error",
    ),
    BucketSize(
        "bucket_size", "sums gradients in buckets of 25 MiB, torch's own, in place of many small ones", "bucket_cap_mb",
        25, safety="tolerance", edit=SetKeyword(("DistributedDataParallel",), "bucket_cap_mb", "25", raises=True),
    ),
    Bf16Gradients(
        "bf16_gradients", "sends gradients around the ranks in bfloat16", "", True, safety="tolerance",
        precision="bfloat16", edit=None,
        by_hand="model.register_comm_hook(None, bf16_compress_hook)  # torch.distributed.algorithms.ddp_comm_hooks",
    ),
)  # fmt: skip
"""Arguments of wrappers."""
