"""Work per op where each argument lies as torch's own schema says: no device is needed to record a call of cuDNN's.

The tests name arguments; their places come from torch. What is expected is computed by torch on meta tensors, by
torch.utils.flop_counter, or by hand from the sizes.
"""

# ruff: noqa: E501  (a case is a line)
from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gobrrr.ledger.work import Work, work_of  # noqa: E402
from tests.ledger.ops.recorder import record  # noqa: E402


def meta(*shape: int, dtype: Any = None) -> Any:
    """A tensor of float32 without memory."""
    return torch.empty(shape, dtype=dtype or torch.float32, device="meta")


def priced(op: str, **given: Any) -> Work | None:
    """A call of `op` (of torch.ops.aten where no other space is said) with these arguments, else defaults."""
    space, _, name = op.rpartition("::")
    base, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, space or "aten"), base, None)
    if packet is None:
        pytest.skip(f"this torch has no {op}")
    call = record(getattr(packet, overload or "default"), (), given)
    return work_of(*call)


def counted(op: str, **given: Any) -> Work:
    found = priced(op, **given)
    assert found is not None, f"{op} is not counted"
    return found


def flops(function: Any, *args: Any, **kwargs: Any) -> tuple[int, Any]:
    """What flop_counter says, and the result, on meta tensors."""
    with FlopCounterMode(display=False) as counter:
        result = function(*args, **kwargs)
    return counter.get_total_flops(), result


X2, W2, X3, W3 = (2, 6, 11, 13), (4, 3, 3, 5), (2, 6, 7, 8, 9), (4, 3, 2, 3, 1)
"""Two groups: 6 channels in, 3 for each filter."""
HOW = {"stride": (2, 3), "padding": (3, 1), "dilation": (2, 1)}
HOW3 = {"stride": (2, 3, 1), "padding": (3, 1, 0), "dilation": (2, 1, 1)}
PLAIN = {"benchmark": False, "deterministic": False, "allow_tf32": True}


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("op", "bias", "x", "w"),
    [
        ("cudnn_convolution", "", "self", "weight"),
        ("miopen_convolution", "bias", "self", "weight"),
        ("mkldnn_convolution", "bias", "self", "weight"),
        ("cudnn_convolution_relu", "bias", "self", "weight"),
        ("cudnn_convolution_add_relu", "bias", "self", "weight"),
        ("miopen_convolution_relu", "bias", "self", "weight"),
        ("miopen_convolution_add_relu", "bias", "self", "weight"),
        ("convolution", "bias", "input", "weight"),
        ("_convolution", "bias", "input", "weight"),
        ("convolution_overrideable", "bias", "input", "weight"),
        ("mkldnn::_convolution_pointwise", "B", "X", "W"),
    ],
)
@pytest.mark.parametrize(("dims", "how"), [((X2, W2), HOW), ((X3, W3), HOW3)])
def test_a_grouped_convolution(
    op: str, bias: str, x: str, w: str, dims: tuple[Any, Any], how: dict[str, Any], with_bias: bool
) -> None:
    image, weight, vector = meta(*dims[0]), meta(*dims[1]), meta(4)
    with_bias = with_bias and bool(bias)
    function = nn.conv2d if len(dims[0]) == 4 else nn.conv3d
    expected, result = flops(function, image, weight, vector if with_bias else None, groups=2, **how)
    more: dict[str, Any] = {bias: vector if with_bias else None} if bias else {}
    if "add_relu" in op:
        more |= {"z": result, "alpha": 1.0}
    if "." not in op and op.endswith(("convolution", "overrideable")):
        more |= PLAIN | {"transposed": False, "output_padding": [0] * len(how["stride"]), "cudnn_enabled": True}
    spread = {key: list(value) for key, value in how.items()}
    found = counted(op, **{x: image, w: weight, "groups": 2}, **spread, **more)
    read = image.nbytes + weight.nbytes + 16 * with_bias + result.nbytes * ("add_relu" in op)
    assert (found.kind, found.flops, found.bytes) == ("convolution", expected, read + result.nbytes)


@pytest.mark.parametrize(
    ("op", "bias"),
    [("cudnn_convolution_transpose", ""), ("miopen_convolution_transpose", "bias"), ("convolution", "bias")],
)
def test_a_grouped_transposed_convolution(op: str, bias: str) -> None:
    image, weight = meta(2, 6, 5, 7), meta(6, 4, 3, 5)
    how: dict[str, Any] = {"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 2), "dilation": (1, 3)}
    expected, result = flops(nn.conv_transpose2d, image, weight, groups=2, **how)
    more: dict[str, Any] = {"bias": meta(8)} if bias else {}
    more |= {"transposed": True} if op == "convolution" else PLAIN
    found = counted(
        op, self=image, input=image, weight=weight, groups=2, **{k: list(v) for k, v in how.items()}, **more
    )
    assert (found.flops, found.bytes) == (expected, image.nbytes + weight.nbytes + 32 * bool(bias) + result.nbytes)


@pytest.mark.parametrize(
    ("name", "num"),
    [
        *((f"slow_conv_{kind}{num}d", num) for kind in ("dilated", "transpose") for num in (2, 3)),
        *(("_slow_conv2d_forward", 2), ("slow_conv3d_forward", 3), ("_conv_depthwise2d", 2), ("conv_depthwise3d", 3)),
    ],
)
def test_convolutions_of_the_cpu_and_depthwise_ones(name: str, num: int) -> None:
    transposed = "transpose" in name
    depthwise, kernel = "depthwise" in name, [3, 5, 2][:num]
    weight = meta(6, 4, *kernel) if transposed else meta(6, 1 if depthwise else 6, *kernel)
    how: dict[str, Any] = {"stride": [2, 3, 1][:num], "padding": [3, 1, 2][:num]}
    if not name.endswith("forward"):
        how["dilation"] = [2, 1, 3][:num]
    if transposed:
        how["output_padding"] = [1, 0, 1][:num]
    function = getattr(nn, f"conv{'_transpose' * transposed}{num}d")
    image = meta(2, 6, 8, 9, 10)[:, :, :, :, 0].contiguous() if num == 2 else meta(2, 6, 8, 9, 10)
    bias = meta(4 if transposed else 6)
    expected, result = flops(function, image, weight, bias, groups=6 if depthwise else 1, **how)
    found = counted(name, self=image, weight=weight, kernel_size=kernel, bias=bias, **how)
    assert (found.flops, found.bytes) == (expected, sum(t.nbytes for t in (image, weight, bias, result)))


@pytest.mark.parametrize("op", ["_convolution_pointwise_.binary", "_convolution_pointwise.binary"])
def test_a_convolution_added_to_a_tensor(op: str) -> None:
    image, weight = meta(2, 6, 9, 9), meta(4, 6, 3, 3)
    expected, result = flops(nn.conv2d, image, weight, meta(4), stride=2, padding=1)
    how: dict[str, Any] = {"padding": [1, 1], "stride": [2, 2], "dilation": [1, 1], "groups": 1, "binary_attr": "add"}
    found = counted(f"mkldnn::{op}", other=result, X=image, W=weight, B=meta(4), **how)
    assert (found.flops, found.bytes) == (expected, image.nbytes + weight.nbytes + 16 + 2 * result.nbytes)


def test_gradients_of_a_convolution_of_the_cpu() -> None:
    """Two products of the forward's size; each gradient is read or written where the mask asks for it."""
    image, weight = meta(2, 6, 9, 9), meta(4, 6, 3, 3)
    once, result = flops(nn.conv2d, image, weight)
    how: dict[str, Any] = {"kernel_size": [3, 3], "stride": [1, 1], "padding": [0, 0]}
    tensors: dict[str, Any] = {"grad_output": result, "self": image, "weight": weight}
    masked = counted("_slow_conv2d_backward.output_mask", **tensors, **how, output_mask=[False, True, False])
    assert (masked.flops, masked.bytes) == (once, result.nbytes + image.nbytes + weight.nbytes)
    given = counted("_slow_conv2d_backward.grad_input", **tensors, **how,
                    grad_input=image, grad_weight=weight, grad_bias=meta(4))  # fmt: skip
    assert (given.flops, given.bytes) == (2 * once, result.nbytes + 2 * image.nbytes + 2 * weight.nbytes + 16)


@pytest.mark.parametrize(
    ("mask", "products", "tensors"),
    [([True, True], 2, "gxxww"), ([False, True], 1, "gxw"), ([True, False], 1, "gwx"), (None, 2, "gxxww")],
)
def test_gradients_by_the_libraries_of_old_traces(mask: list[bool] | None, products: int, tensors: str) -> None:
    """cudnn_convolution_backward(x, grad, w, padding, stride, dilation, groups, ..., mask), of torch before 1.12."""
    shapes = {"x": (2, 6, 9, 9), "g": (2, 4, 7, 7), "w": (4, 6, 3, 3)}
    once, _ = flops(nn.conv2d, meta(*shapes["x"]), meta(*shapes["w"]))
    rest = ["[0, 0]", "[1, 1]", "[1, 1]", "1", "True", "False", "True", str(mask) if mask else ""]
    for name in ("cudnn_convolution_backward", "mkldnn_convolution_backward", "miopen_convolution_backward"):
        found = work_of(
            f"aten::{name}", [shapes[t] for t in "xgw"] + [()] * 8, ["float"] * 3 + [""] * 8, [""] * 3 + rest
        )
        assert found is not None
        assert (found.flops, found.bytes) == (products * once, sum(meta(*shapes[t]).nbytes for t in tensors))


@pytest.mark.parametrize(
    ("name", "other", "made"), [("input", (4, 3, 3, 3), (2, 6, 9, 9)), ("weight", (2, 6, 9, 9), (4, 3, 3, 3))]
)
def test_half_a_gradient_of_older_traces(name: str, other: tuple[int, ...], made: tuple[int, ...]) -> None:
    """backward_input(sizes, grad, w, ...), backward_weight(sizes, grad, x, ...); two groups."""
    once, result = flops(nn.conv2d, meta(2, 6, 9, 9), meta(4, 3, 3, 3), groups=2)
    shapes, dtypes = [(), tuple(result.shape), other], ["ScalarList", "float", "float"]
    found = work_of(f"aten::cudnn_convolution_backward_{name}", shapes, dtypes, [str(list(made)), "", ""])
    assert found is not None
    assert (found.flops, found.bytes) == (once, result.nbytes + meta(*other).nbytes + meta(*made).nbytes)


Q, K, V, OUT, LOGS = meta(2, 4, 16, 8), meta(2, 4, 12, 8), meta(2, 4, 12, 6), meta(2, 4, 16, 6), meta(2, 4, 16)
SCORES = 2 * 4 * 16 * 12
FORWARD, BACKWARD = 2 * SCORES * (8 + 6), 2 * SCORES * (3 * 8 + 2 * 6)
"""Forward: scores over 8, values over 6. Backward: scores again, gradients of queries and of keys (8 each); of
probabilities and of values (6 each)."""
SHARE = sum(min(i + 1, 12) for i in range(16)) / (16 * 12)
SEEDS = {"philox_seed": meta(dtype=torch.int64), "philox_offset": meta(dtype=torch.int64)}
PACKED = {"cum_seq_q": None, "cum_seq_k": None, "max_q": 16, "max_k": 12}
BIAS = meta(2, 4, 16, 12)


def size(*tensors: Any) -> int:
    return sum(t.nbytes for t in tensors)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("bias", [BIAS, None])
@pytest.mark.parametrize(
    ("op", "named"),
    [
        ("_scaled_dot_product_flash_attention", ""),
        ("_scaled_dot_product_flash_attention_for_cpu", "attn_mask"),
        ("_scaled_dot_product_efficient_attention", "attn_bias"),
        ("_scaled_dot_product_cudnn_attention", "attn_bias"),
        ("_scaled_dot_product_fused_attention_overrideable", "attn_bias"),
        ("_scaled_dot_product_attention_math", "attn_mask"),
        ("scaled_dot_product_attention", "attn_mask"),
    ],
)
def test_attention_forward(op: str, named: str, bias: Any, causal: bool) -> None:
    more = {named: bias} if named else {}
    found = counted(op, query=Q, key=K, value=V, dropout_p=0.1, is_causal=causal, compute_log_sumexp=not causal, **more)
    assert (found.kind, found.flops) == ("attention", FORWARD)
    assert found.bytes == size(Q, K, V, OUT, LOGS) + (bias.nbytes if named and bias is not None else 0)
    assert found.least_flops == (pytest.approx(FORWARD * SHARE) if causal else None)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("op", "grad", "more", "reads"),
    [
        ("_scaled_dot_product_flash_attention_backward", "grad_out", PACKED | SEEDS, ()),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", "grad_out", {"attn_mask": BIAS}, (BIAS,)),
        ("_scaled_dot_product_efficient_attention_backward", "grad_out_",
         SEEDS | {"attn_bias": BIAS, "grad_input_mask": [True] * 4}, (BIAS,)),
        ("_scaled_dot_product_cudnn_attention_backward", "grad_out", PACKED | SEEDS | {"attn_bias": BIAS}, (BIAS,)),
        ("_scaled_dot_product_fused_attention_overrideable_backward", "grad_out",
         PACKED | SEEDS | {"attn_bias": BIAS, "grad_input_mask": [True] * 4}, (BIAS,)),
    ],
)  # fmt: skip
def test_attention_backward(op: str, grad: str, more: dict[str, Any], reads: tuple[Any, ...], causal: bool) -> None:
    given = {grad: OUT, "query": Q, "key": K, "value": V, "out": OUT, "logsumexp": LOGS, "dropout_p": 0.1}
    found = counted(op, **given, **more, is_causal=causal)
    assert (found.flops, found.bytes) == (BACKWARD, size(OUT, Q, K, V, OUT, LOGS, *reads) + size(Q, K, V))
    assert found.least_flops == (pytest.approx(BACKWARD * SHARE) if causal else None)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_whose_heads_come_last(causal: bool) -> None:
    """_flash_ and _efficient_attention take (batch, length, heads, dim)."""
    q, k, v, out = (t.transpose(1, 2).contiguous() for t in (Q, K, V, OUT))
    bare = {"query": q, "key": k, "value": v, "dropout_p": 0.1}
    mask = {"custom_mask_type": 1 if causal else 0}
    flash = counted("_flash_attention_forward", **bare, **PACKED, is_causal=causal, return_debug_mask=not causal)
    efficient = counted("_efficient_attention_forward", **bare, **mask, bias=BIAS)
    for found, extra in ((flash, 0), (efficient, BIAS.nbytes)):
        assert (found.flops, found.bytes) == (FORWARD, size(Q, K, V, OUT, LOGS) + extra)
        assert (found.least_flops is None) == (not causal)
    back = {"query": q, "key": k, "value": v, "out": out, "logsumexp": LOGS, "dropout_p": 0.1} | SEEDS
    lengths = {"max_seqlen_q": 16, "max_seqlen_k": 12}
    flash = counted("_flash_attention_backward", grad_out=out, **back, **PACKED, is_causal=causal)
    efficient = counted("_efficient_attention_backward", grad_out_=out, **back, **lengths, **mask, bias=BIAS)
    for found, extra in ((flash, 0), (efficient, BIAS.nbytes)):
        assert (found.flops, found.bytes) == (BACKWARD, size(OUT, Q, K, V, OUT, LOGS, Q, K, V) + extra)
        assert (found.least_flops is None) == (not causal)


def test_packed_sequences_are_not_counted() -> None:
    packed, lengths = meta(32, 4, 8), meta(3, dtype=torch.int32)
    bare = {"query": packed, "key": packed, "value": packed, "dropout_p": 0.0}
    assert priced("_flash_attention_forward", **bare, **PACKED | {"cum_seq_q": lengths}, is_causal=False) is None
    heads = {"query": meta(1, 32, 4, 8), "key": meta(1, 32, 4, 8), "value": meta(1, 32, 4, 8), "custom_mask_type": 0}
    assert priced("_efficient_attention_forward", **heads, cu_seqlens_q=lengths, cu_seqlens_k=lengths) is None
    back = {"grad_out_": heads["query"], "out": heads["query"], "logsumexp": meta(1, 4, 32)} | heads
    assert priced("_efficient_attention_backward", **back) is not None
    assert priced("_efficient_attention_backward", **back, cu_seqlens_q=lengths, cu_seqlens_k=lengths) is None


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((2, 4, 16, 8), (2, 4, 12, 7), (2, 4, 12, 8)),
        ((2, 4, 16, 8), (2, 4, 12, 8), (2, 4, 11, 8)),
        ((4, 8), (4, 8), (4, 8)),
    ],
)
def test_attention_whose_parts_do_not_fit_is_not_counted(q: Any, k: Any, v: Any) -> None:
    assert priced("_scaled_dot_product_flash_attention", query=meta(*q), key=meta(*k), value=meta(*v)) is None


def test_attention_without_a_batch_is_of_one() -> None:
    found = counted(
        "_scaled_dot_product_attention_math", query=meta(4, 16, 8), key=meta(4, 12, 8), value=meta(4, 12, 6)
    )
    assert found.flops == FORWARD / 2


def gates(mode: int) -> int:
    """cuDNN's number of a kind: relu and tanh, LSTM, GRU."""
    return (1, 1, 4, 3)[mode]


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("projected", [0, 5])
def test_stacks_of_recurrent_layers(mode: int, both: bool, projected: int) -> None:
    """By a sum over layers and directions of each weight matrix: gates by inputs, gates by state, and the projection."""
    steps, batch, inputs, hidden, layers, ways = 7, 3, 10, 12, 3, 2 if both else 1
    for op, projects in (("_cudnn_rnn", True), ("miopen_rnn", False)):
        out = projected if projects and projected else hidden
        matrices = [gates(mode) * hidden * width for layer in range(layers) for _ in range(ways)
                    for width in (inputs if layer == 0 else out * ways, out)]  # fmt: skip
        matrices += [out * hidden] * (layers * ways if out != hidden else 0)
        x, result = meta(steps, batch, inputs), meta(steps, batch, out * ways)
        how: dict[str, Any] = {
            "input": x,
            "weight": [],
            "weight_stride0": 4,
            "hx": meta(layers * ways, batch, out),
            "mode": mode,
        }
        how |= {"hidden_size": hidden, "num_layers": layers, "batch_first": False, "dropout": 0.5, "train": True}
        how |= {"bidirectional": both, "batch_sizes": []} | ({"proj_size": projected} if projects else {})
        forward = counted(op, **how)
        flops = 2 * steps * batch * sum(matrices)
        assert (forward.kind, forward.flops) == ("rnn", flops)
        assert forward.bytes == x.nbytes + 4 * sum(matrices) + result.nbytes
        backward = counted(
            f"{op}_backward", **how, output=result, grad_output=result, weight_buf=meta(1), output_mask=[True] * 4
        )
        assert backward.flops == 2 * flops
        assert backward.bytes == 2 * x.nbytes + 2 * result.nbytes + 2 * 4 * sum(matrices)


@pytest.mark.parametrize(("mode", "hidden", "layers"), [(4, 12, 1), (2, 0, 1), (2, 12, 0), (2, 12, 10**6)])
def test_a_recurrent_layer_that_makes_no_sense_is_not_counted(mode: int, hidden: int, layers: int) -> None:
    how = {
        "hidden_size": hidden,
        "num_layers": layers,
        "batch_first": False,
        "dropout": 0.5,
        "train": True,
        "proj_size": 0,
    }
    assert priced("_cudnn_rnn", input=meta(7, 3, 10), weight=[], weight_stride0=4, hx=meta(1, 3, 12), mode=mode,
                  bidirectional=False, batch_sizes=[], **how) is None  # fmt: skip


def test_a_recurrent_layer_of_mkldnn_forward_and_backward() -> None:
    """An LSTM from 16 to 32: two matrices of 128 rows, two biases, two states."""
    x, out, state = meta(5, 2, 16), meta(5, 2, 32), meta(2, 32)
    weights = [meta(128, 16), meta(128, 32), meta(128), meta(128)]
    how: dict[str, Any] = {"reverse": False, "batch_sizes": [], "mode": 2, "hidden_size": 32, "num_layers": 1, "has_biases": True,
                           "bidirectional": False, "batch_first": False, "train": True}  # fmt: skip
    forward = counted(
        "mkldnn_rnn_layer", input=x, **{f"weight{i}": w for i, w in enumerate(weights)}, hx_=state, cx_=state, **how
    )
    flops = 2 * 10 * 128 * (16 + 32)
    assert (forward.flops, forward.bytes) == (flops, size(x, *weights, state, state) + size(out, state, state))
    states = {"hx_": state, "cx_tmp": state, "output": out, "hy_": state, "cy_": state}
    grads = {"grad_output": out, "grad_hy": state, "grad_cy": state, "workspace": meta(1)}
    backward = counted(
        "mkldnn_rnn_layer_backward",
        input=x,
        **{f"weight{i}": w for i, w in enumerate(weights, 1)},
        **states,
        **grads,
        **how,
    )
    read = size(x, *weights, *states.values(), out, state, state)
    assert (backward.flops, backward.bytes) == (2 * flops, read + size(x, *weights, state, state))


@pytest.mark.parametrize("biased", [True, False])
def test_cells_fused_by_torch(biased: bool) -> None:
    """LSTM: each of 4h gates is a sum of two (and two biases), an activation of 4 steps; the cell 2 products, a sum, tanh
    and a product. GRU: 3h gates alike, the state 4 steps; it keeps five vectors for backward."""
    state, bias = meta(3, 8), (lambda n: meta(n) if biased else None)
    lstm = counted("_thnn_fused_lstm_cell", input_gates=meta(3, 32), hidden_gates=meta(3, 32), cx=state,
                   input_bias=bias(32), hidden_bias=bias(32))  # fmt: skip
    assert lstm.flops == 96 * (1 + 2 * biased + 4) + 24 * 5
    assert lstm.bytes == 4 * (2 * 96 + 24 + 64 * biased) + 4 * (2 * 24 + 96)
    gru = counted("_thnn_fused_gru_cell", input_gates=meta(3, 24), hidden_gates=meta(3, 24), hx=state,
                  input_bias=bias(24), hidden_bias=bias(24))  # fmt: skip
    assert gru.flops == 72 * (1 + 2 * biased + 4) + 24 * 4
    assert gru.bytes == 4 * (2 * 72 + 24 + 48 * biased) + 4 * (24 + 120)
    back = counted("_thnn_fused_lstm_cell_backward_impl", grad_hy=state, grad_cy=state, cx=state, cy=state,
                   workspace=meta(3, 32), has_bias=biased)  # fmt: skip
    assert (back.flops, back.bytes) == (6 * 96, 4 * (4 * 24 + 96) + 4 * (96 + 24))
    back = counted("_thnn_fused_gru_cell_backward", grad_hy=state, workspace=meta(3, 40), has_bias=biased)
    assert (back.flops, back.bytes) == (18 * 24, 4 * (24 + 120) + 4 * (72 + 72 + 24))
