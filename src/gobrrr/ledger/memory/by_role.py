"""The memory ledger: bytes of a step by what they are for."""

from __future__ import annotations

from gobrrr.ledger.model.device import DeviceMemory
from gobrrr.ledger.model.ledger import MemoryLedger
from gobrrr.recording.model.facts import Facts


def memory_ledger(facts: Facts, device: DeviceMemory | None = None) -> MemoryLedger:
    """From the modules, the optimizers, the counting step and the process's resident peak, or the accelerator's by its
    allocator. Unseen stays null."""
    in_modules = sum(m.param_bytes - m.shared_param_bytes for m in facts.modules)
    peak = device.peak if device is not None else facts.peak_rss_bytes
    most = facts.peak_rss_bytes if device is None else None

    def there(value: int | None) -> int | None:
        """Null where it is more than was ever in memory: tensors on the meta device, files that are mapped."""
        return None if value is not None and most is not None and value > most else value

    parameters = in_modules or sum(o.param_bytes for o in facts.optimizers) or None
    gradients = sum(o.grad_bytes for o in facts.optimizers) if facts.optimizers else None
    state = sum(o.state_bytes for o in facts.optimizers) if facts.optimizers else None
    inputs = there(sum(i.num_bytes for i in facts.inputs) if facts.inputs else None)
    activations = there(facts.saved_total)
    named = [("parameters", parameters), ("gradients", gradients), ("optimizer state", state)]
    named += [("activations", activations), ("inputs", inputs)]
    known = [(name, value) for name, value in named if value]
    runtime = facts.runtime_bytes if device is None else None
    rest = max(0, peak - sum(value for _, value in known) - (runtime or 0)) if peak is not None else None
    elements = sum(o.num_elements for o in facts.optimizers)
    model = sum(o.param_bytes + o.grad_bytes + o.state_bytes for o in facts.optimizers)
    growth = facts.rss_growth_per_step if device is None else device.growth_per_step
    return MemoryLedger(
        parameters, gradients, state, activations, inputs, runtime, rest, peak,
        tuple(sorted(known, key=lambda item: -item[1])), growth,
        model / elements if elements else None,
    )  # fmt: skip
