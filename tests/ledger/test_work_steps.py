"""FLOPs of elementwise ops against their textbook formulas, run on numbers that count their own steps.

One FLOP for each sum, difference, product, quotient and comparison, and for each exp, log, tanh, erf, root or power.
Formulas and gradients are those of torch's documentation; constants are folded beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gobrrr.ledger.work.elementwise import POINTWISE
from tests.ledger.test_work import F, counted


class Steps:
    """A number that is never computed: what is done to it is counted."""

    def __init__(self) -> None:
        self.count = 0

    def step(self, *_: Any) -> Steps:
        self.count += 1
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __pow__ = step


def do(x: Any, *others: Any) -> Any:
    """A comparison, or a function that counts as one step."""
    return next(v for v in (x, *others) if isinstance(v, Steps)).step()


exp = log = tanh = erf = root = larger = smaller = do


def sigmoid(x: Any) -> Any:
    return 1 / (1 + exp(-x))


def silu_gradient(g: Any, x: Any) -> Any:
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


def mish_gradient(g: Any, x: Any) -> Any:
    t = tanh(log(1 + exp(x)))
    return g * (t + x * sigmoid(x) * (1 - t * t))


FORMULAS: dict[str, tuple[int, Callable[..., Any]]] = {
    "neg": (1, lambda x: -x),
    "exp": (1, exp),
    "sqrt": (1, root),
    "relu": (1, lambda x: larger(x, 0)),
    "clamp": (1, lambda x: smaller(larger(x, 0), 1)),
    "hardtanh": (1, lambda x: smaller(larger(x, -1), 1)),
    "sigmoid": (1, sigmoid),
    "silu": (1, lambda x: x * sigmoid(x)),
    "gelu": (1, lambda x: x / 2 * (1 + erf(x * 0.7071))),
    "mish": (1, lambda x: x * tanh(log(1 + exp(x)))),
    "softplus": (1, lambda x: log(1 + exp(x * 2)) / 2),
    "elu": (1, lambda x: larger(x, 0) and 1.5 * (exp(x) - 1)),
    "celu": (1, lambda x: larger(x, 0) and 1.5 * (exp(x / 1.5) - 1)),
    "selu": (1, lambda x: larger(x, 0) and 1.76 * (exp(x) - 1)),
    "logit": (1, lambda x: log(x / (1 - x))),
    "hardsigmoid": (1, lambda x: smaller(larger(x / 6 + 0.5, 0), 1)),
    "hardswish": (1, lambda x: x * smaller(larger(x / 6 + 0.5, 0), 1)),
    "log_sigmoid": (1, lambda x: -log(1 + exp(-x))),
    "add": (2, lambda x, y: x + y),
    "mul": (2, lambda x, y: x * y),
    "div": (2, lambda x, y: x / y),
    "maximum": (2, larger),
    "hypot": (2, lambda x, y: root(x * x + y * y)),
    "xlogy": (2, lambda x, y: x * log(y)),
    "logaddexp": (2, lambda x, y: log(exp(x) + exp(y))),
    "logaddexp2": (2, lambda x, y: log(exp(x) + exp(y))),
    "where": (3, lambda condition, x, y: do(condition, x, y)),
    "masked_fill": (3, lambda x, mask, value: do(mask, x, value)),
    "addcmul": (3, lambda x, y, z: x + 0.5 * y * z),
    "addcdiv": (3, lambda x, y, z: x + 0.5 * y / z),
    "lerp": (3, lambda x, y, w: x + w * (y - x)),
    "threshold_backward": (2, lambda g, x: do(g, x)),
    "sigmoid_backward": (2, lambda g, y: g * y * (1 - y)),
    "tanh_backward": (2, lambda g, y: g * (1 - y * y)),
    "silu_backward": (2, silu_gradient),
    "mish_backward": (2, mish_gradient),
    "gelu_backward": (2, lambda g, x: g * (0.5 * (1 + erf(x * 0.7)) + x * 0.4 * exp(-0.5 * x * x))),
    "softplus_backward": (2, lambda g, x: g * sigmoid(2 * x)),
    "hardswish_backward": (2, lambda g, x: g * (x / 3 + 0.5)),
    "logit_backward": (2, lambda g, x: g / (x * (1 - x))),
    "log_sigmoid_backward": (2, lambda g, x: g * sigmoid(-x)),
    "elu_backward": (2, lambda g, x: g * 1.5 * exp(x * 1.2)),
    "native_dropout_backward": (2, lambda g, mask: g * mask * 1.25),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_an_element_costs_the_steps_of_its_formula(name: str) -> None:
    inputs, formula = FORMULAS[name]
    numbers = [Steps() for _ in range(inputs)]
    formula(*numbers)
    shared = sum(number.count for number in numbers)
    args: list[object] = [(F, 11, 7)] * inputs
    if name == "elu_backward":
        args = [(F, 11, 7), 1.5, 1.0, 1.2, False, (F, 11, 7)]
    if name == "native_dropout_backward":
        args = [(F, 11, 7), ("bool", 11, 7), 1.25]
    assert counted(name, *args).flops == 77 * shared


def test_what_is_left_takes_one_step() -> None:
    """Comparisons, roundings, trigonometry and special functions; a table of two columns says how many are read."""
    for name in (
        "cos",
        "erfinv",
        "digamma",
        "floor",
        "logical_not",
        "isnan",
        "gt",
        "eq",
        "atan2",
        "fmod",
        "bitwise_xor",
    ):
        inputs, _ = POINTWISE[name]
        assert counted(name, *[(F, 11, 7)] * inputs).flops == 77


@pytest.mark.parametrize(("alpha", "steps"), [(1, 1), (-1, 1), (2, 2), (0.5, 2), (None, 1)])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_a_sum_with_a_factor_takes_two_steps(name: str, alpha: object, steps: int) -> None:
    assert counted(name, (F, 11, 7), (F, 7), alpha).flops == 77 * steps


@pytest.mark.parametrize(
    ("name", "args", "flops"),
    [
        ("frexp", [(F, 7)], 7),
        ("complex", [(F, 7), (F, 1)], 7),
        ("polar", [(F, 5, 1), (F, 7)], 35),
        ("glu", [(F, 11, 14), 1], 5 * 77),  # sigmoid 4, a product
        # of both halves: sigmoid 4; grad times it; times the other half, times 1 - sigmoid
        ("glu_backward", [(F, 11, 7), (F, 11, 14), 1], 8 * 77),
        ("_prelu_kernel_backward", [(F, 11, 7), (F, 11, 7), (F, 11, 7)], 3 * 77),
        ("log_sigmoid_forward", [(F, 11, 7)], 5 * 77),
        ("rrelu_with_noise", [(F, 11, 7), (F, 11, 7), 0.1, 0.3, True, None], 2 * 77),
        ("linalg_cross", [(F, 11, 3), (F, 1, 3), -1], 9 * 11),
        ("equal", [(F, 7), (F, 7)], 7),
    ],
)
def test_ops_of_several_tensors(name: str, args: list[object], flops: float) -> None:
    assert counted(name, *args).flops == flops
