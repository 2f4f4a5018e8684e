"""Which argument of a known trainer a finding's cure is: where a library writes the loop, its user cannot."""

from __future__ import annotations

import re

import msgspec

from gobrrr.recording.model.facts import Settings, Span
from gobrrr.rules.model.finding import Finding

NAMES = {
    "transformers": "Hugging Face TrainingArguments",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "fastai": "fastai",
}
PADDING = "BRR409"
LITTLE = 0.1
"""Share of the saving of batches of like length that padding to the longest may save and need no word (proposed)."""
_PAD = "padding=True instead of padding='max_length' in the tokenizer call, and DataCollatorWithPadding pads per batch"
_LOADERS = {
    "lightning": "num_workers and persistent_workers=True of the DataLoader that train_dataloader() gives",
    "accelerate": "num_workers and persistent_workers=True of the DataLoader that prepare() is given",
    "fastai": "DataLoaders(..., num_workers=...)",
}
_BFLOAT16 = {
    "lightning": 'Trainer(precision="bf16-mixed")',
    "accelerate": 'Accelerator(mixed_precision="bf16")',
}
_WORKERS = _LOADERS | {"transformers": "dataloader_num_workers and dataloader_prefetch_factor"}
ARGUMENTS: dict[str, dict[str, str]] = {
    "BRR102": _BFLOAT16 | {"transformers": "bf16=True", "fastai": "learn.to_bf16()"},
    "BRR103": _BFLOAT16
    | {"transformers": "bf16=True instead of fp16=True", "fastai": "learn.to_bf16() instead of to_fp16()"},
    "BRR111": {"transformers": "gradient_checkpointing=False"},
    "BRR201": {
        "transformers": "torch_compile=True",
        "lightning": "torch.compile(module) before Trainer.fit",
        "accelerate": 'Accelerator(dynamo_backend="inductor")',
        "fastai": "Learner(dls, torch.compile(model))",
    },
    "BRR208": {
        "transformers": 'optim="adamw_torch_fused"',
        "lightning": "fused=True in configure_optimizers(); refused beside gradient_clip_val under mixed precision",
        "accelerate": "fused=True in the optimizer that prepare() is given",
        "fastai": "Learner(opt_func=partial(OptimWrapper, opt=partial(torch.optim.AdamW, fused=True)))",
    },
    "BRR307": {"lightning": "Trainer(detect_anomaly=False)"},
    "BRR308": {"transformers": "full_determinism=False", "lightning": "Trainer(deterministic=False)"},
    "BRR312": {
        "transformers": "eval_steps larger, or eval_strategy='epoch'; per_device_eval_batch_size",
        "lightning": "Trainer(val_check_interval=..., limit_val_batches=...)",
    },
    "BRR304": {
        "transformers": "save_steps and logging_steps",
        "lightning": "Trainer(log_every_n_steps=...), ModelCheckpoint",
    },
    "BRR404": _LOADERS | {"transformers": "dataloader_persistent_workers=True"},
    **dict.fromkeys(("BRR401", "BRR402", "BRR403", "BRR405", "BRR408"), _WORKERS),
    "BRR409": {
        "transformers": f"{_PAD}; train_sampling_strategy='group_by_length'",
        "lightning": _PAD,
        "accelerate": _PAD,
        "fastai": "before_batch=pad_input, and SortedDL",
    },
    "BRR501": {
        "transformers": "logging_steps larger, logging_nan_inf_filter=False",
        "lightning": "Trainer(log_every_n_steps=...), self.log() with tensors, no prog_bar=True",
    },
    "BRR502": {
        "transformers": "dataloader_pin_memory=True",
        "accelerate": "DataLoaderConfiguration(non_blocking=True)",
    },
    "BRR602": {"transformers": "gradient_checkpointing=True", "lightning": "Trainer(accumulate_grad_batches=...)"},
}
"""By code, then by trainer (program_facts.TRAINERS); checked with transformers 5.23, lightning 2.6, accelerate 1.15;
fastai's are from its documentation. What is not named has no argument there."""


def with_argument(finding: Finding, settings: Settings) -> Finding:
    """The same, its advice led by the argument of the trainer that ran the step, at the line that sets it: the one that
    runs a trainer says nothing."""
    argument = _argument(finding, settings.trainer)
    advice = f"In {NAMES[settings.trainer]}: {argument}. {finding.advice}".rstrip() if argument else finding.advice
    place = settings.padding_span if finding.code == PADDING else _place(argument or "", settings)
    ran_by = settings.trainer_span and settings.trainer_span.place
    elsewhere = finding.where[:1] and finding.where[0].place != ran_by
    if place is None or (elsewhere and finding.code != PADDING):
        return msgspec.structs.replace(finding, advice=advice) if argument else finding
    return msgspec.structs.replace(finding, advice=advice, where=(place,))


def _argument(finding: Finding, trainer: str) -> str | None:
    """None where none helps: batches that are padded to their longest already need no other padding."""
    argument = ARGUMENTS.get(finding.code, {}).get(trainer)
    saved = [finding.evidence.get(name) for name in ("saved_by_longest", "saved_by_bucketing")]
    longest, together = (float(each.value) if each is not None else 1.0 for each in saved)
    if argument is None or finding.code != PADDING or longest > LITTLE * together:
        return argument
    return argument.removeprefix(_PAD).removeprefix("; ") or None


def _place(argument: str, settings: Settings) -> Span | None:
    """The line where the user gives the first argument that is named and given, else the call that would take it; none
    where the argument is another object's, a loader's say."""
    call = settings.arguments_span
    if not argument or call is None or not (settings.trainer == "transformers" or re.match(r"\w+\(", argument)):
        return None
    given = (settings.argument_lines.get(name) for name in re.findall(r"\w+", argument))
    return Span(call.file, next((line for line in given if line), call.line), call.function)
