"""Elementwise ops, over tensors or lists of them: one FLOP per element and arithmetic step; a transcendental (exp, erf,
sigmoid's division) is one.

The tables say how many leading arguments are inputs (tensors after them are outputs given with out=), what the result's
dtype is, and how many FLOPs an element costs where that is not one.
"""

from __future__ import annotations

import math

import msgspec

from gobrrr.ledger.work.call import FORMULAS, Call, Work, formula, table_name, work
from gobrrr.ledger.work.tensor import broadcast, promoted, read, result_size, written

ONE = """neg negative positive sgn sign relu relu6 square ceil floor round trunc fix frac clip hardtanh
    threshold leaky_relu elu celu selu hardswish hardshrink softshrink bitwise_not nan_to_num conj_physical
    _conj_physical rad2deg deg2rad gelu silu mish hardsigmoid softplus logit log_sigmoid"""
ONE_FLOAT = """acos arccos acosh arccosh asin arcsin asinh arcsinh atan arctan atanh arctanh cos cosh sin sinc sinh tan
    tanh exp exp2 expm1 log log10 log1p log2 sqrt rsqrt reciprocal sigmoid erf erfc erfinv lgamma digamma mvlgamma i0
    special_i0e special_i1 special_i1e special_entr special_erfcx special_ndtri special_log_ndtr special_ndtr
    special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_i0
    special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_spherical_bessel_j0"""
ONE_REAL = "abs absolute angle real imag"
ONE_BOOL = "isnan isinf isfinite isposinf isneginf isreal signbit logical_not"
TWO = """add sub subtract mul multiply rsub maximum minimum fmax fmin remainder fmod bitwise_and bitwise_or
    bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ floor_divide gcd
    lcm copysign nextafter heaviside hypot pow float_power ldexp _prelu_kernel clamp_min clamp_max special_zeta
    threshold_backward hardtanh_backward leaky_relu_backward hardswish_backward hardsigmoid_backward hardshrink_backward
    softshrink_backward sigmoid_backward tanh_backward gelu_backward silu_backward mish_backward softplus_backward
    logit_backward native_dropout_backward relu_backward igamma igammac logaddexp logaddexp2
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
    special_laguerre_polynomial_l special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w polygamma"""
TWO_FLOAT = "div divide true_divide atan2 arctan2 xlogy special_xlog1py"
TWO_BOOL = "eq ne lt le gt ge not_equal greater less logical_and logical_or logical_xor isclose"
THREE = "where addcmul addcdiv lerp clamp masked_fill rrelu_with_noise_backward log_sigmoid_backward _s_where"

FLOPS = {
    **{"addcmul": 3, "addcdiv": 3, "lerp": 3, "clamp": 2, "hardtanh": 2, "hypot": 4, "where": 1, "masked_fill": 1},
    # sigmoid: negate, exp, add, divide; silu one more; mish: exp, add, log, tanh, product; as torch documents them
    **{"sigmoid": 4, "silu": 5, "gelu": 5, "mish": 5, "softplus": 5, "elu": 4, "celu": 5, "selu": 4, "logit": 3},
    **{"hardswish": 5, "hardsigmoid": 4, "log_sigmoid": 5, "logaddexp": 4, "logaddexp2": 4, "xlogy": 2},
    # grad times the derivative, which is itself a few steps
    **{"sigmoid_backward": 3, "tanh_backward": 3, "gelu_backward": 11, "silu_backward": 9, "mish_backward": 14},
    **{"softplus_backward": 6, "hardswish_backward": 3, "logit_backward": 3, "log_sigmoid_backward": 6},
    **{"native_dropout_backward": 2, "elu_backward": 4},
}
_TABLES = (
    *((1, "same", ONE), (1, "float", ONE_FLOAT), (1, "real", ONE_REAL), (1, "bool", ONE_BOOL)),
    *((2, "same", TWO), (2, "float", TWO_FLOAT), (2, "bool", TWO_BOOL), (3, "same", THREE)),
)
POINTWISE = {name: (inputs, result) for inputs, result, names in _TABLES for name in names.split()}


def pointwise(call: Call, inputs: int, result: str = "same", flops: float = 1.0, kind: str = "elementwise") -> Work:
    """Broadcast the tensors among the first `inputs` arguments, do `flops` per element, write the result once."""
    operands = call.tensors(0, inputs)
    numel = math.prod(broadcast(t.shape for t in operands))
    if call.in_place:
        out = written(call.tensor(0))
    else:
        given = call.tensors(inputs)
        out = numel * (given[-1].itemsize if given else _itemsize(call, inputs, result))
    return work(kind, flops * numel, read(*operands), out)


def _itemsize(call: Call, inputs: int, result: str) -> int:
    """Bytes per element of the result; a fractional scalar makes integers float32."""
    operands = call.tensors(0, inputs)
    fractional = any(set(call.text(i)) & set(".en") for i in range(inputs) if call.text(i)[:1] in "-0123456789in")
    return result_size(operands, "float" if result == "same" and fractional else result)


def _listed(call: Call) -> Work:
    inputs, result = POINTWISE[call.name]
    flops = FLOPS.get(call.name, 1)
    if call.name in ("add", "sub") and call.number(2, 1.0) not in (1.0, -1.0):
        flops = 2
    return pointwise(call, inputs, result, flops)


FORMULAS.update(dict.fromkeys(POINTWISE, _listed))


@formula("elu_backward")
def elu_backward(call: Call) -> Work:
    """elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result)."""
    return pointwise(call, 6, flops=FLOPS["elu_backward"])


@formula("glu")
def glu(call: Call) -> Work:
    """Half of the channels gate the others: a sigmoid and a product per result."""
    x = call.tensor(0)
    return work("elementwise", 2.5 * x.numel, read(x), 0.5 * written(x))


@formula("complex polar")
def complex_of(call: Call) -> Work:
    """Two real tensors to one complex."""
    a, b = call.tensor(0), call.tensor(1)
    numel = math.prod(broadcast((a.shape, b.shape)))
    return work("elementwise", numel, read(a, b), 2 * numel * promoted([a, b])[1])


@formula("rrelu_with_noise")
def rrelu(call: Call) -> Work:
    """rrelu_with_noise(self, noise, lower, upper, training): in training the noise is written."""
    x = call.tensor(0)
    return work("elementwise", 2 * x.numel, read(x), written(x) * (2 if call.flag(4) else 1))


@formula("linalg_cross cross")
def cross(call: Call) -> Work:
    """Three products and a difference for each of three components: 9 FLOPs per vector."""
    a, b = call.tensor(0), call.tensor(1)
    numel = math.prod(broadcast((a.shape, b.shape)))
    return work("elementwise", 3 * numel, read(a, b), numel * a.itemsize)


@formula("bucketize searchsorted")
def search(call: Call) -> Work:
    """A binary search per value: log2 of the boundaries in comparisons; indices are int64."""
    first, second = call.tensor(0), call.maybe(1)
    bounds, values = (second, first) if call.name == "bucketize" and second else (first, second)
    count = values.numel if values else 1
    steps = math.ceil(math.log2(max(bounds.shape[-1] if bounds.shape else 1, 1) + 1))
    touched = min(read(bounds, call.maybe(5)), count * steps * (bounds.itemsize + 8))
    return work("gather", count * steps, read(values), touched, (4 if call.flag(2) else 8) * count)


@formula("isin")
def isin(call: Call) -> Work:
    """Each element looked for among the others: sorted, so a logarithm of comparisons."""
    elements, among = call.tensors(0, 2)
    steps = math.ceil(math.log2(among.numel + 1))
    return work("elementwise", elements.numel * steps, read(elements, among), elements.numel)


# Optimizer steps over lists of tensors. torch records a list's shapes only up to 30 tensors; over that the call alone
# does not say enough, and `fused_work` prices it from the number of elements, which the optimizer knows.


class ListRule(msgspec.Struct, frozen=True):
    """An op over `lists` lists of tensors at most (of a fused step `usual` where that is not recorded): FLOPs per
    element, and lists written. Every list that is given is read."""

    lists: int
    flops: float
    written: int
    usual: int = 0


# Adam: parameter, gradient, two moments (a third with amsgrad); all but the gradient are written. FLOPs: two moments
# (3 + 4), their corrections (2), root, epsilon, division, update (2), and one for the weight decay of AdamW.
FUSED = {
    "_fused_adam": ListRule(5, 14, 3, usual=4),
    "_fused_adamw": ListRule(5, 15, 3, usual=4),
    "_fused_sgd": ListRule(3, 5, 2, usual=3),
    "_fused_adagrad": ListRule(3, 7, 2, usual=3),
}
_BINARY, _UNARY, _NORM = ListRule(2, 1, 1), ListRule(1, 1, 1), ListRule(1, 2, 0)
FOREACH = {
    **dict.fromkeys("add sub mul div maximum minimum clamp_min clamp_max pow".split(), _BINARY),
    **dict.fromkeys("addcmul addcdiv".split(), ListRule(3, 3, 1)),
    **{"lerp": ListRule(2, 3, 1), "norm": _NORM, "powsum": _NORM, "max": ListRule(1, 1, 0)},
    **{"zero": ListRule(0, 0, 1), "copy": ListRule(1, 0, 1)},
    **dict.fromkeys(
        """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal
        round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc clone""".split(),
        _UNARY,
    ),
}


RULES = FUSED | {f"_foreach_{op}": rule for op, rule in FOREACH.items()}


@formula(RULES)
def of_lists(call: Call) -> Work:
    """By the rule; an empty list is recorded like one that is too long."""
    rule, members = RULES[call.name], call.members(0)
    given = sum(isinstance(a, tuple) and i not in call.opaque for i, a in enumerate(call.args[: rule.lists]))
    writes = given - 1 if call.name in FUSED else rule.written
    elements = sum(t.numel * t.itemsize for t in members)
    return work("optimizer", rule.flops * sum(t.numel for t in members), (given + writes) * elements)


def fused_work(name: str, num_elements: int) -> Work:
    """Work of a fused optimizer step over lists that were not recorded, from the elements of one of them, float32."""
    rule = FUSED[table_name(name)]
    return work("optimizer", rule.flops * num_elements, (rule.usual + rule.written) * num_elements * 4)
