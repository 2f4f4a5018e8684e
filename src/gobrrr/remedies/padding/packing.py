"""The sequences of a batch put into fewer rows, inside the model: what the program sees keeps its shape."""

from __future__ import annotations

import sys
from typing import Any

from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.model import Remedy
from gobrrr.rules.model.finding import Saving
from gobrrr.rules.verdict.report import Report

MODELS = "transformers.modeling_utils"


class Packing(Remedy):
    """The trunk of a transformers model (all but its head), in training: the sequences of a padded batch go through it
    in fewer and fuller rows, none seeing another, each token at the position that it has; what comes out is put back to
    where it was, with zeros at padding. So head, loss, labels, metrics and the number of rows are the program's own.
    The first batch goes through it both ways, without gradients and dropout: a trunk that computes anything else is
    left alone."""

    name = "packing"
    title = "puts the sequences of a batch into fewer rows inside the model, none seeing another"
    safety = "order"
    judged_without_dropout = True
    leaves_padding = True
    place = "model"
    serves = "training"
    late = True
    saves_memory = True
    unseen = "what the model gives at padding is its head's answer to zeros: nothing may be read there"
    conflicts = ("compile", "compile_max_autotune", "compile_reduce_overhead", "compile_memory_budget")
    by_hand = (
        "dataset = gobrrr.data.PackedDataset(documents, gobrrr.data.pack(lengths, capacity))\n"
        "DataLoader(dataset, collate_fn=gobrrr.data.PackingCollate(capacity))  # fewer rows, and no padding in the head"
    )

    def predicts(self, report: Report) -> Saving:
        """Return the saving: work on padding, less what rows as long as the longest of each batch still hold of it."""
        for finding in report.findings:
            saved = finding.evidence.get("saved_by_bucketing")
            if finding.code in self.codes and saved is not None and "packing" in finding.evidence:
                expected = min(float(saved.value), finding.saving.ceiling_ns)
                return Saving(0.5 * expected, expected, finding.saving.ceiling_ns)
        return Saving()

    def apply(self, seams: Seams) -> None:
        from gobrrr.remedies.padding.packed_forward import Trunks

        trunks = Trunks(lambda told: seams.applied(self.name, told), lambda why: seams.declined(self.name, why))

        def meets(model: Any) -> None:
            library = sys.modules.get(MODELS)
            if library is None:
                return seams.declined(self.name, "no model of transformers was called")
            for part in model.modules():
                if isinstance(part, library.PreTrainedModel) and part.base_model is part:
                    kind = type(part)
                    if kind not in trunks.kinds:
                        seams.replace(kind, "forward", trunks.packing(kind))

        seams.at_model(meets)
