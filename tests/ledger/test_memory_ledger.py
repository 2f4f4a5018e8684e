"""The memory ledger: bytes by what they are for, null where nobody looked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.ledger.memory import memory_ledger
from gobrrr.recording.model.facts import Facts, InputFacts, ModuleFacts, OptimizerFacts

MB = 1 << 20


def adam(elements: int = MB, grads: int | None = None, id: int = 0) -> OptimizerFacts:
    """fp32 Adam: two moments."""
    grad_bytes = 4 * elements if grads is None else grads
    return OptimizerFacts(
        id, "Adam", num_elements=elements, param_bytes=4 * elements, grad_bytes=grad_bytes, state_bytes=8 * elements
    )


def test_what_two_modules_share_is_counted_once() -> None:
    """A program that calls a model, and its encoder by itself."""
    whole, part = ModuleFacts(0, param_bytes=8 * MB), ModuleFacts(1, param_bytes=5 * MB, shared_param_bytes=5 * MB)
    assert memory_ledger(Facts(modules=(whole, part))).parameters == 8 * MB


def test_every_kind_of_byte_has_its_place() -> None:
    facts = Facts(
        modules=(ModuleFacts(0, param_bytes=4 * MB),),
        optimizers=(adam(),),
        inputs=(InputFacts(num_bytes=2 * MB), InputFacts(num_bytes=MB), InputFacts(num_bytes=64 * MB, made=True)),
        saved_total=20 * MB,
        peak_rss_bytes=100 * MB,
        rss_growth_per_step=5.0,
    )
    found = memory_ledger(facts)
    assert (found.parameters, found.gradients, found.optimizer_state) == (4 * MB, 4 * MB, 8 * MB)
    assert (found.activations, found.inputs, found.peak) == (20 * MB, 3 * MB, 100 * MB)
    assert found.workspace == (100 - 4 - 4 - 8 - 20 - 3) * MB
    assert found.alive_at_peak[0] == ("activations", 20 * MB)
    assert [size for _, size in found.alive_at_peak] == sorted((s for _, s in found.alive_at_peak), reverse=True)
    assert found.growth_per_step == 5.0
    assert found.bytes_per_parameter == 16.0


def test_what_is_more_than_was_ever_in_memory_is_not_known() -> None:
    facts = Facts(optimizers=(adam(),), inputs=(InputFacts(num_bytes=101 * MB),), saved_total=5000 * MB,
                  peak_rss_bytes=100 * MB)  # fmt: skip
    found = memory_ledger(facts)
    assert found.activations is None and found.inputs is None and found.parameters == 4 * MB
    assert found.workspace == (100 - 16) * MB and "inputs" not in dict(found.alive_at_peak)


def test_nothing_seen_is_null_and_not_zero() -> None:
    found = memory_ledger(Facts())
    assert found.parameters is found.gradients is found.optimizer_state is found.activations is None
    assert found.inputs is found.workspace is found.peak is found.bytes_per_parameter is None
    assert found.alive_at_peak == ()


def test_what_is_there_and_empty_is_zero() -> None:
    """SGD without momentum keeps no state; a step without gradients saves nothing."""
    sgd = OptimizerFacts(0, "SGD", num_elements=MB, param_bytes=4 * MB, grad_bytes=4 * MB)
    found = memory_ledger(Facts(optimizers=(sgd,), saved_total=0))
    assert (found.optimizer_state, found.activations) == (0, 0)
    assert found.bytes_per_parameter == 8.0
    assert found.alive_at_peak == (("parameters", 4 * MB), ("gradients", 4 * MB))


def test_functional_programs_have_the_parameters_of_their_optimizers() -> None:
    assert memory_ledger(Facts(optimizers=(adam(), adam(2 * MB, id=1)))).parameters == 12 * MB


def test_frozen_modules_count_as_parameters_and_not_per_trained_one() -> None:
    found = memory_ledger(Facts(modules=(ModuleFacts(0, param_bytes=400 * MB),), optimizers=(adam(),)))
    assert found.parameters == 400 * MB
    assert found.bytes_per_parameter == 16.0


def test_a_peak_below_what_is_known_leaves_no_negative_rest() -> None:
    """Memory that is mapped and not resident."""
    found = memory_ledger(Facts(modules=(ModuleFacts(0, param_bytes=50 * MB),), peak_rss_bytes=10 * MB))
    assert found.workspace == 0


SIZE = st.integers(0, 1 << 40)


@given(
    st.lists(SIZE, max_size=3), st.lists(st.tuples(st.integers(0, 1 << 30), SIZE), max_size=3), st.none() | SIZE,
    st.none() | SIZE,
)  # fmt: skip
def test_the_named_parts_and_the_rest_are_the_peak(
    modules: list[int], optimizers: list[tuple[int, int]], saved: int | None, peak: int | None
) -> None:
    facts = Facts(
        modules=tuple(ModuleFacts(n, param_bytes=size) for n, size in enumerate(modules)),
        optimizers=tuple(adam(elements, grads, n) for n, (elements, grads) in enumerate(optimizers)),
        saved_total=saved,
        peak_rss_bytes=peak,
    )
    found = memory_ledger(facts)
    named = sum(size for _, size in found.alive_at_peak)
    if peak is None:
        assert found.workspace is None
    else:
        assert found.workspace == max(0, peak - named)
    assert len({name for name, _ in found.alive_at_peak}) == len(found.alive_at_peak)
    if found.bytes_per_parameter is not None:
        assert found.bytes_per_parameter == pytest.approx(
            12 + sum(g for _, g in optimizers) / sum(e for e, _ in optimizers)
        )


def test_the_interpreter_and_torch_are_no_workspace() -> None:
    facts = Facts(modules=(ModuleFacts(0, param_bytes=50 * MB),), peak_rss_bytes=500 * MB, runtime_bytes=220 * MB)
    found = memory_ledger(facts)
    assert (found.runtime, found.workspace) == (220 * MB, 230 * MB)
    assert memory_ledger(Facts(peak_rss_bytes=500 * MB)).runtime is None
