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


# (FLOPs per element, results of the input's size, bytes per element written beside them, kind) of ops that pass over
# one tensor once.
PASSES = {
    "frexp": (1, 1, 4, "elementwise"),  # mantissas, and exponents as int32
    "glu": (2.5, 0.5, 0, "elementwise"),  # half of the channels gate the others: a sigmoid and a product per result
    "log_sigmoid_forward": (FLOPS["log_sigmoid"], 2, 0, "elementwise"),  # on a CPU with a buffer for backward
    **dict.fromkeys(  # float to int8: scale, round, clamp
        ("quantize_per_tensor", "quantize_per_tensor_dynamic", "quantize_per_channel"), (3, 0, 1, "elementwise")
    ),
    "dequantize": (2, 0, 4, "elementwise"),  # int8 to float32: subtract, scale
    **dict.fromkeys(  # scale, round, clamp, scale back; with a mask of booleans
        ("fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask"),
        (5, 1, 1, "elementwise"),
    ),
    **dict.fromkeys(("native_dropout", "_fused_dropout"), (3, 1, 1, "random")),  # draw, compare, scale; with a mask
    "renorm": (3, 1, 0, "reduction"),  # a norm per slice, then a scale: the input is read once in the ideal
}


def _once(call: Call) -> Work:
    flops, results, beside, kind = PASSES[call.name]
    x = call.tensor(0)
    return work(kind, flops * x.numel, read(x), results * written(x), beside * x.numel)


FORMULAS.update(dict.fromkeys(PASSES, _once))


@formula("complex polar")
def complex_of(call: Call) -> Work:
    """Two real tensors to one complex."""
    a, b = call.tensor(0), call.tensor(1)
    numel = math.prod(broadcast((a.shape, b.shape)))
    return work("elementwise", numel, read(a, b), 2 * numel * promoted([a, b])[1])


@formula("glu_backward")
def glu_backward(call: Call) -> Work:
    """glu_backward(grad, self, dim): the gradient of both halves."""
    grad, x = call.tensor(0), call.tensor(1)
    return work("elementwise", 8 * grad.numel, read(grad, x), written(x))


@formula("_prelu_kernel_backward")
def prelu_backward(call: Call) -> Work:
    """Gradients of the input and, elementwise, of the weight."""
    grad, x, weight = call.tensors(0, 3)
    return work("elementwise", 3 * x.numel, read(grad, x, weight), 2 * written(x))


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


@formula("equal allclose")
def same(call: Call) -> Work:
    """Compares two tensors and answers with one boolean; it may stop early, which is not known here."""
    a, b = call.tensor(0), call.tensor(1)
    return work("reduction", a.numel, read(a, b))


# Optimizer steps over lists of tensors. torch records a list's shapes only up to 30 tensors; over that the call alone
# does not say enough, and `list_work` prices it from the number of elements, which the optimizer knows.


class ListRule(msgspec.Struct, frozen=True):
    """An op over `lists` lists of tensors at most (`usual` where that is not recorded): FLOPs per element, and lists
    written. Every list that is given is read."""

    lists: int
    usual: int
    flops: float
    written: int


# Adam: parameter, gradient, two moments (a third with amsgrad); all but the gradient are written. FLOPs: two moments
# (3 + 4), their corrections (2), root, epsilon, division, update (2), and one for the weight decay of AdamW.
FUSED = {
    "_fused_adam": ListRule(5, 4, 14, 3),
    "_fused_adamw": ListRule(5, 4, 15, 3),
    "_fused_sgd": ListRule(3, 3, 5, 2),
    "_fused_adagrad": ListRule(3, 3, 7, 2),
}
_BINARY, _UNARY, _NORM = ListRule(2, 1, 1, 1), ListRule(1, 1, 1, 1), ListRule(1, 1, 2, 0)
FOREACH = {
    **dict.fromkeys("add sub mul div maximum minimum clamp_min clamp_max pow".split(), _BINARY),
    **dict.fromkeys("addcmul addcdiv".split(), ListRule(3, 3, 3, 1)),
    **{"lerp": ListRule(2, 2, 3, 1), "norm": _NORM, "powsum": _NORM, "max": ListRule(1, 1, 1, 0)},
    **{"zero": ListRule(0, 0, 0, 1), "copy": ListRule(1, 1, 0, 1)},
    **dict.fromkeys(
        """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal
        round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc clone""".split(),
        _UNARY,
    ),
}


def _given(call: Call, rule: ListRule) -> int:
    """How many lists of tensors are not empty; an empty one is recorded like one that is too long."""
    return sum(isinstance(a, tuple) and i not in call.opaque for i, a in enumerate(call.args[: rule.lists]))


def _priced(call: Call) -> Work:
    rule = _rule(call.name)
    members = call.members(0)
    given = rule.lists and _given(call, rule)
    writes = given - 1 if call.name in FUSED else rule.written
    elements = sum(t.numel * t.itemsize for t in members)
    return work("optimizer", rule.flops * sum(t.numel for t in members), (given + writes) * elements)


def _rule(name: str) -> ListRule:
    return FUSED.get(name) or FOREACH[name.removeprefix("_foreach_")]


FORMULAS.update(dict.fromkeys([*FUSED, *(f"_foreach_{op}" for op in FOREACH)], _priced))


def list_work(name: str, num_elements: int, itemsize: int = 4, num_lists: int | None = None) -> Work | None:
    """Work of an op over lists whose shapes were not recorded, from the number of elements of one list.

    `name` is _fused_adamw_, _foreach_mul_ and the like (aten:: before it is fine), `itemsize` bytes per element,
    `num_lists` how many lists of tensors the call was given where that is known. None for other ops.
    """
    base = table_name(name)
    if FORMULAS.get(base) is not _priced:
        return None
    rule = _rule(base)
    reads = rule.usual if num_lists is None else min(num_lists, rule.lists)
    return work("optimizer", rule.flops * num_elements, (reads + rule.written) * num_elements * itemsize)
