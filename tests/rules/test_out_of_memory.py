"""Why memory ran out and what would have fitted, from figures made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gobrrr.recording.model.facts import HeldGraph, Span
from gobrrr.recording.model.out_of_memory import Bounds, DeviceState, Group, Input, OutOfMemory, Process, Role
from gobrrr.rules.memory.out_of_memory import diagnosis
from gobrrr.rules.memory.shortage import shortage, to_come
from gobrrr.rules.memory.way import Way, with_together
from gobrrr.rules.memory.ways import ways as ways_of

MIB, GIB = 1 << 20, 1 << 30
LINE = Span("train.py", 7, "forward")
BLOCK = (
    Group("blocks.*.up", "addmm", (1024, 256), "float32", 8 * 64 * MIB, 8),
    Group("blocks.*.down", "gelu", (1024, 1024), "float32", 8 * 256 * MIB, 8),
)


def failed(**changed: Any) -> OutOfMemory:
    """A training whose forward failed after 8 of 16 blocks: 2.5 GiB of activations, 4 GiB in all."""
    roles = (
        Role("activations", 8 * 320 * MIB, BLOCK), Role("parameters", 64 * MIB), Role("gradients", 64 * MIB),
        Role("optimizer state", 128 * MIB), Role("variables", 16 * MIB),
    )  # fmt: skip
    usual = OutOfMemory(
        type="RuntimeError", text="DefaultCPUAllocator: can't allocate memory", kind="cpu", asked=256 * MIB, steps=3,
        lines=(LINE,),
        phase="forward", layer="blocks.8.down", layers_before=8, num_layers=16, training=True, optimizers=("AdamW",),
        inputs=(Input("x", (128, 256), "float32", 16 * MIB),), alive={"cpu": roles},
        process=Process(resident=3 * GIB, virtual=4 * GIB - 128 * MIB),
        limits=Bounds(address_space=4 * GIB, memory=64 * GIB, free=60 * GIB),
    )  # fmt: skip
    return msgspec.structs.replace(usual, **changed)


def ways(oom: OutOfMemory, line: str = "") -> list[Way]:
    return ways_of(oom, shortage(oom), line)


def names(oom: OutOfMemory) -> list[str]:
    return [way.name for way in ways(oom)]


def test_the_rest_of_the_forward_is_told_from_the_layers_that_it_passed() -> None:
    # as much again, of which one result was asked for; and in backward the gradients of one op's result and input
    assert to_come(failed()) == (8 * 320 - 256 + 2 * 256) * MIB
    assert to_come(failed(phase="backward")) == 0


def test_the_batch_is_split_until_all_of_the_step_fits() -> None:
    found = diagnosis(failed())
    assert found.shortage.limit == 4 * GIB
    assert found.shortage.missing == 256 * MIB + (4 * GIB - 128 * MIB) + (8 * 320 - 256 + 512) * MIB - 4 * GIB
    first = found.ways[0]
    assert (first.name, first.fits, first.exact) == ("micro_batch", True, "exact where the loss is a mean")
    # Of 5,120 MiB of activations at the end, 16 of inputs, 256 asked and 512 in backward half is 2,952: above the 2,944
    # that are missing, and not with 5 % of the limit to spare.
    assert first.what.startswith("4 micro-batches of 32")
    assert first.saves == round((5120 + 16 + 256 + 512) * MIB * 3 / 4)


def test_batch_norm_makes_smaller_batches_another_training() -> None:
    first = next(way for way in ways(failed(batch_norm=True)) if way.name == "micro_batch")
    assert "BatchNorm" in first.exact


def test_an_evaluation_with_graphs_needs_no_grad_first() -> None:
    oom = failed(training=False, phase="evaluation")
    assert names(oom)[0] == "no_grad"
    assert "no_grad" not in names(failed())


def test_a_list_that_keeps_graphs_is_the_reason_and_goes_first() -> None:
    held = HeldGraph("losses", "list", 400, 1.0, Span("train.py", 20), True, 4 * MIB, 4)
    found = diagnosis(failed(grown=(held,)))
    assert "losses keeps 400 tensors" in found.reason
    assert found.ways[0].name == "keep_numbers"


def test_a_sum_of_losses_is_the_reason() -> None:
    found = diagnosis(failed(summed=(("total", 40),)))
    assert "total is a sum of 40 results" in found.reason
    assert found.ways[0].name == "keep_numbers"


def test_scores_of_attention_are_spared_before_the_batch_is_split() -> None:
    scores = (
        Group("blocks.*.attn", "softmax", (8, 4, 1024, 1024), "float32", 1024 * MIB, 8),
        Group("blocks.*.attn", "div", (8, 4, 1024, 1024), "float32", 1024 * MIB, 8),
        Group("blocks.*.attn", "addmm", (8192, 128), "float32", 512 * MIB, 8),
    )
    alive = {"cpu": (Role("activations", 2560 * MIB, scores), Role("parameters", 64 * MIB))}
    first = ways(failed(alive=alive))[0]
    assert (first.name, first.saves) == ("sdpa", 4096 * MIB)  # of twice as many layers


def test_the_first_step_of_an_optimizer_needs_its_state() -> None:
    roles = (Role("parameters", GIB, (Group("*.weight", num_bytes=GIB, count=4),)), Role("gradients", GIB))
    oom = failed(
        phase="optimizer", steps=0, alive={"cpu": roles}, process=Process(resident=int(2.5 * GIB), virtual=3 * GIB),
        asked=200 * MIB,
    )  # fmt: skip
    assert to_come(oom) == 2 * GIB
    found = {way.name: way for way in ways(oom)}
    assert found["optimizer_8bit"].saves == int(1.5 * GIB)
    assert found["fused_optimizer"].saves == GIB // 2  # two temporaries of the largest
    assert "fused_optimizer" not in names(msgspec.structs.replace(oom, asked=256 * MIB)), "the state itself failed"
    card = DeviceState(total=4 * GIB)
    on_card = msgspec.structs.replace(oom, kind="device", alive={"cuda:0": roles}, device=card)
    assert {way.name: way.saves for way in ways(on_card)}["no_foreach"] == GIB


def test_the_nearest_limit_is_the_one_that_was_met() -> None:
    found = diagnosis(failed(limits=Bounds(address_space=64 * GIB, memory=64 * GIB, free=128 * MIB)))
    assert found.shortage.whose == "the machine or its group"
    assert found.shortage.limit == 3 * GIB + 128 * MIB


def on_device(**changed: Any) -> OutOfMemory:
    device = DeviceState(total=16 * GIB, free=GIB, allocated=12 * GIB, reserved=13 * GIB, in_process=14 * GIB)
    return OutOfMemory(
        "", "CUDA out of memory", "device", asked=2 * GIB, device=msgspec.structs.replace(device, **changed)
    )


@pytest.mark.parametrize(
    ("changed", "reason", "first"),
    [
        ({"others": 9 * GIB}, "Others hold 9.00 GiB", "end_others"),
        ({"reserved": 15 * GIB, "allocated": 10 * GIB}, "fragmented", "expandable_segments"),
        ({"total": GIB, "free": 0, "in_process": None}, "larger than the whole device", "micro_batch"),
        ({"allocated": 20 * GIB}, "host's memory", "micro_batch"),
        ({"free": 8 * GIB}, "has room", "micro_batch"),
        ({}, "The program's tensors hold 12.0 GiB of 16.0 GiB; context and libraries take 1.00 GiB", "micro_batch"),
    ],
)
def test_a_devices_own_figures_say_why(changed: dict[str, Any], reason: str, first: str) -> None:
    found = diagnosis(on_device(**changed))
    assert reason in found.reason
    assert found.ways[0].name == first
    assert all(way.fits is not True for way in found.ways)  # nobody knows what the step would still have taken


def test_a_form_of_the_failed_line_says_what_to_write_instead() -> None:
    oom = failed(asked=3 * GIB, phase="", training=None, optimizers=())
    found = ways(oom, "d = (a[:, None] - b[None]).square().sum(-1)")
    assert found[0].name == "pairs_of_all_rows"
    assert "cdist" in found[0].what
    for line in ("x = x.unsqueeze(1)", "y = x  # softmax(", "z = x.transpose(0, 1)"):
        assert not [way for way in ways(oom, line) if way.exact == "the same values"], line


def test_where_nothing_is_known_of_the_need_no_way_is_said_to_fit() -> None:
    for oom in (failed(asked=None), failed(layers_before=0), failed(limits=Bounds(memory=640 * GIB, free=600 * GIB))):
        assert shortage(oom).missing is None
        assert {way.fits for way in ways(oom)} == {None}


def test_frozen_parameters_and_later_steps_need_no_more_state() -> None:
    roles = (Role("frozen parameters", 14 * GIB), Role("parameters", 64 * MIB), Role("gradients", 64 * MIB))
    first = failed(phase="backward", steps=0, alive={"cpu": roles})
    assert to_come(first) == 128 * MIB
    assert to_come(msgspec.structs.replace(first, steps=7)) == 0
    assert to_come(msgspec.structs.replace(first, optimizers=("SGD",))) == 0


def test_what_is_not_enough_comes_last_the_largest_first_and_crumbs_are_left_out() -> None:
    found = ways(failed(inputs=(), limits=Bounds(address_space=4 * GIB)))
    short = [way for way in found if way.fits is False]
    assert found[-len(short) :] == short
    assert [way.saves for way in short] == sorted((way.saves for way in short), reverse=True)
    tiny = ways(failed(alive={"cpu": (Role("activations", 2 * GIB, BLOCK), Role("optimizer state", 8192))}))
    assert "optimizer_8bit" not in [way.name for way in tiny]


def test_masks_of_dropout_keep_the_scores_on_the_cpu() -> None:
    scores = tuple(Group("a", op, (8, 4, 1024, 1024), "float32", GIB, 8) for op in ("softmax", "native_dropout"))
    assert "sdpa" not in names(failed(alive={"cpu": (Role("activations", 2 * GIB, scores),)}))


def test_a_smaller_batch_does_not_end_what_grows() -> None:
    found = {way.name: way for way in ways(failed(training=False, phase="evaluation", steps=8))}
    assert found["smaller_batch"].fits is False, "it only dies later"
    assert found["no_grad"].fits


@pytest.mark.parametrize("text", ["worker (pid 3) is killed by signal: Killed", "killed by signal: Bus error"])
def test_a_workers_death_is_about_workers(text: str) -> None:
    alive = {"cpu": (Role("activations", GIB),)}
    found = diagnosis(OutOfMemory("RuntimeError", f"RuntimeError: DataLoader {text}", "worker", alive=alive))
    assert "fewer_workers" in [way.name for way in found.ways]
    assert ("shared_memory" in [way.name for way in found.ways]) == ("Bus" in text)


def test_nothing_known_is_said_so() -> None:
    found = diagnosis(OutOfMemory("RuntimeError", "std::bad_alloc", "cpu"))
    assert "not known" in found.reason
    assert found.sentence == "Out of memory"


def by_name(oom: OutOfMemory) -> dict[str, Way]:
    return {way.name: way for way in ways(oom)}


def test_an_input_far_larger_than_those_before_is_named_first() -> None:
    before = (Input("", (128, 8), "float32", 4096), Input("", (128, 32), "float32", 16384))
    oom = failed(of_model=True, usual=before)
    assert names(oom)[0] == "large_input"
    assert "x 128x256 is 8 times as large as those before (128x32)" in by_name(oom)["large_input"].what
    assert "large_input" not in names(failed(usual=before))  # variables of a line may be anything
    half = (Input("", (128, 128), "float32", 65536),)
    assert "large_input" not in names(failed(of_model=True, usual=half))
    other = (Input("", (128, 64), "int64", 65536), Input("", (128,), "float32", 512))
    assert "large_input" not in names(failed(of_model=True, usual=other))


def test_a_column_and_a_row_that_broadcast_are_to_have_one_shape() -> None:
    column, row = Input("pred", (32768, 1), "float32", 131072), Input("target", (32768,), "float32", 131072)
    oom = failed(inputs=(column, row), asked=4 * 32768**2, phase="")
    assert names(oom)[0] == "same_shapes"
    assert "pred 32768x1 and target 32768 broadcast" in by_name(oom)["same_shapes"].what
    assert "same_shapes" not in names(failed(inputs=(column, row), asked=32768**2))


def test_a_value_for_each_pair_of_rows_is_no_batch_to_split() -> None:
    num = 10_000
    pairs = (Group("", "sigmoid", (num, num), "float32", 4 * num * num, 1),)
    oom = failed(inputs=(Input("z", (num, 32), "float32", 128 * num),), alive={"cpu": (
        Role("activations", 4 * num * num, pairs), Role("parameters", MIB))}, asked=4 * num * num)  # fmt: skip
    assert "fewer_pairs" in names(oom)
    assert "micro_batch" not in names(oom)
    few = failed(inputs=(Input("z", (1024, 32), "float32", 131072),), asked=4 * 1024**2)
    assert "fewer_pairs" not in names(few)


def test_an_array_in_a_wider_type_keeps_its_own() -> None:
    shape = (36000, 64, 64, 3)
    text = f"Unable to allocate 3.30 GiB for an array with shape {shape} and data type float64"
    same = Role("variables", 442_368_000, (Group("images", "", shape, "uint8", 442_368_000, 1),))
    oom = failed(kind="numpy", text=text, asked=8 * 442_368_000, alive={"cpu": (same,)}, phase="", inputs=())
    assert "images as float64 is 8 times as large: keep uint8" in by_name(oom)["keep_type"].what
    other = msgspec.structs.replace(same.groups[0], shape=(9,))
    assert "keep_type" not in names(
        msgspec.structs.replace(oom, alive={"cpu": (Role("variables", 442_368_000, (other,)),)})
    )


def test_a_layer_that_holds_most_of_the_model_is_named() -> None:
    wide = Group("fc.weight", "", (1024, 262_144), "float32", GIB, 1)
    oom = failed(phase="backward", steps=0, asked=GIB, alive={"cpu": (Role("parameters", GIB + MIB, (wide,)),)})
    assert "fc.weight 1024x262144 holds 99.9 %" in by_name(oom)["smaller_layer"].what
    assert "pool what goes into it" in by_name(oom)["smaller_layer"].what
    assert "smaller_layer" not in names(failed())


def test_views_that_keep_their_whole_tensor_are_to_be_copied() -> None:
    views = Group("bank", "", (32, 197, 192), "float32", 2 * GIB, 400, shown=0.005)
    oom = failed(alive={"cpu": (Role("other tensors", 2 * GIB, (views,)), Role("parameters", MIB))})
    assert names(oom)[0] == "copy_views"  # before a smaller batch: most of what is known is kept by it
    assert "400 tensors in bank are kept by views of 0.5 % of them" in by_name(oom)["copy_views"].what
    assert "free_references" not in names(oom)


def test_memory_that_nobody_holds_comes_back_by_the_allocators_threshold() -> None:
    process = Process(resident=4 * GIB, virtual=4 * GIB, runtime=256 * MIB)
    rest = 4 * GIB - 256 * MIB - (8 * 320 + 272) * MIB
    assert by_name(failed(process=process))["return_freed"].saves == round(0.8 * rest)
    full = msgspec.structs.replace(process, runtime=256 * MIB + rest)
    assert "return_freed" not in names(failed(process=full))


def test_a_whole_graph_is_no_batch() -> None:
    edges = Input("edge_index", (2, 900_000), "int64", 16 * 900_000)
    oom = failed(inputs=(Input("x", (50_000, 64), "float32", 12_800_000), edges))
    assert "the whole graph of 50,000 nodes" in by_name(oom)["sampled_graph"].what
    ids = Input("ids", (2, 512), "int64", 8192)  # a batch of two
    assert "sampled_graph" not in names(failed(inputs=(ids, msgspec.structs.replace(ids, name="labels"))))
    assert "micro_batch" not in names(oom)


def test_models_of_earlier_folds_are_to_be_dropped() -> None:
    oom = failed(phase="optimizer", repeated=4)
    assert by_name(oom)["old_models"].saves == 192 * MIB  # three fourths of 256
    assert "old_models" not in names(failed(phase="optimizer"))


def test_what_has_a_row_for_each_sample_goes_with_the_batch() -> None:
    cache = Group("", "", (128, 8, 24, 16), "float32", GIB, 21)
    roles = Role("other tensors", GIB, (cache,)), Role("parameters", 64 * MIB)
    oom = failed(phase="evaluation", training=False, optimizers=(), alive={"cpu": roles}, steps=0)
    assert by_name(oom)["smaller_batch"].saves > GIB // 2


def test_a_state_that_brings_its_graph_is_the_reason() -> None:
    found = diagnosis(failed(carried="hidden"))
    assert found.reason == "hidden brings the graph of the 3 steps before."
    first = found.ways[0]
    assert (first.name, first.saves) == ("detach_state", 8 * 320 * MIB * 3 // 4)
    evaluated = failed(carried="sample", training=False, phase="evaluation")
    assert names(evaluated)[:2] == ["no_grad", "detach_state"]


def test_a_result_far_larger_than_its_input_is_made_for_some_rows_at_a_time() -> None:
    queries = Input("Q", (160, 32, 48), "float32", 4 * 160 * 32 * 48)
    asked, roles = 4 * 160 * 800 * 32 * 128, (Role("variables", 20 * MIB),)
    process, limits = Process(resident=GIB, virtual=GIB), Bounds(address_space=2 * GIB, memory=64 * GIB, free=60 * GIB)
    oom = failed(inputs=(queries,), asked=asked, alive={"cpu": roles}, phase="", model="", training=None,
                 process=process, limits=limits)  # fmt: skip
    found = by_name(oom)["pieces"]
    assert found.what == "compute it for 40 of the 160 rows of Q at a time"  # 0.95 of 1.95 GiB were missing
    assert (found.saves, found.fits) == (asked * 3 // 4, True)
    assert "pieces" not in names(msgspec.structs.replace(oom, model="Net")), "its batch is split"
    assert "pieces" not in names(msgspec.structs.replace(oom, asked=asked + 4)), "no row for each of its rows"
    large = msgspec.structs.replace(queries, num_bytes=asked // 2)
    assert "pieces" not in names(msgspec.structs.replace(oom, inputs=(large,)))


def test_a_wider_type_of_a_reshaped_array_is_told_too() -> None:
    text = "Unable to allocate 1.29 GiB for an array with shape (6144, 4, 84, 84) and data type float64"
    obs = Group("self.obs", "", (384, 16, 4, 84, 84), "uint8", 173_408_256, 1)
    oom = failed(kind="numpy", text=text, asked=8 * 173_408_256, phase="", inputs=(),
                 alive={"cpu": (Role("arrays", 173_408_256, (obs,)),)})  # fmt: skip
    assert "self.obs as float64 is 8 times as large: keep uint8" in by_name(oom)["keep_type"].what


def test_what_has_a_row_for_each_of_a_large_input_goes_with_it() -> None:
    before = (Input("", (4, 256), "float32", 4096),)
    feats = Group("feats", "", (128, 256), "float32", 2 * GIB, 20)
    roles = Role("other tensors", 2 * GIB, (feats,)), Role("parameters", MIB)
    found = ways(failed(of_model=True, usual=before, alive={"cpu": roles}))
    assert [way.name for way in found][:2] == ["large_input", "free_references"]
    assert found[0].saves > 2 * GIB * 31 / 32


def test_containers_are_told_whole_whatever_shapes_they_hold() -> None:
    cache = tuple(Group("self._cache", "", (257, 6001 - n), "complex64", 200 * MIB, 14) for n in range(3))
    roles = (
        Role("other tensors", 3 * GIB, (Group("x", "", (9,), "float32", 300 * MIB, 1), *cache)),
        Role("parameters", 1),
    )
    found = by_name(failed(alive={"cpu": roles}))["free_references"]
    assert found.what.startswith("42 tensors in self._cache")
    assert found.saves == 600 * MIB


def test_whole_layers_of_a_fine_tuning_are_named() -> None:
    embed, head = (Group(f"{n}.weight", "", (128_004, 256), "float32", 500 * MIB, 1) for n in ("embed", "head"))
    lora = Group("layers.*.lora_A", "", (8, 256), "float32", MIB, 16)
    roles = Role("parameters", 1001 * MIB, (embed, head, lora)), Role("frozen parameters", GIB)
    found = by_name(failed(phase="optimizer", alive={"cpu": roles}))["freeze"]
    assert found.what.startswith("embed.weight and head.weight are 99.9 % of what is trained")
    assert "freeze" not in names(failed(phase="optimizer", alive={"cpu": roles[:1]})), "no fine-tuning"
    alone = Role("parameters", 1000 * MIB, (embed, head)), roles[1]
    assert "freeze" not in names(failed(phase="optimizer", alive={"cpu": alone})), "all that is trained"


def test_ways_that_are_enough_together_are_told_as_such() -> None:
    """Two that save the same activations are not added up."""
    process = Process(resident=1800 * MIB, virtual=4 * GIB, runtime=100 * MIB)
    params = Role("parameters", 800 * MIB, tuple(Group(n, "", (1, 9), "float32", 400 * MIB, 1) for n in "ab"))
    oom = failed(phase="optimizer", steps=0, asked=100 * MIB, process=process,
                 alive={"cpu": (params, Role("gradients", 800 * MIB))})  # fmt: skip
    found = list(diagnosis(oom).ways)  # 1,600 MiB are missing, and 205 are to be free
    alone = ["optimizer_8bit", "fused_optimizer", "optimizer_in_backward"]
    assert [way.name for way in found] == ["together", *alone]
    assert [way.fits for way in found] == [True, False, False, False]
    assert found[0].what == "2 and 3 of this list together"
    assert found[0].saves == (1200 + 800) * MIB
    less = msgspec.structs.replace(params, groups=[msgspec.structs.replace(each, count=4) for each in params.groups])
    little = diagnosis(msgspec.structs.replace(oom, alive={"cpu": (less, Role("gradients", 800 * MIB))})).ways
    assert "together" not in [way.name for way in little], "1,400 are not enough"
    short, role = shortage(oom), (Way(name, name, 1000 * MIB, False) for name in ("micro_batch", "bf16_autocast"))
    assert with_together(same := list(role), short) == same
    whole = [Way(name, name, 1000 * MIB, False) for name in ("bf16_autocast", "large_input", "free_references")]
    assert with_together(whole, short)[0].what == "2 and 4 of this list together", "a smaller input has both of these"
    assert with_together(whole[1:], short) == whole[1:]


def test_twins_and_what_nobody_is_seen_to_hold_are_never_said_to_fit() -> None:
    process = Process(resident=20 * GIB, virtual=4 * GIB, runtime=256 * MIB)
    assert by_name(failed(process=process))["return_freed"].fits is None
    alive = {"cpu": (Role("parameters", 3 * GIB), Role("gradients", 3 * GIB), Role("optimizer state", 6 * GIB))}
    assert by_name(failed(phase="optimizer", repeated=2, alive=alive))["old_models"].fits is None
    assert by_name(failed(phase="optimizer", repeated=3, alive=alive))["old_models"].fits


def test_gradients_that_are_wanted_in_eval_are_left() -> None:
    """Style transfer and attacks optimise their input through a frozen model."""
    activations = Role("activations", 2 * GIB, BLOCK)
    frozen = failed(training=False, alive={"cpu": (activations, Role("frozen parameters", 64 * MIB))})
    assert "no_grad" not in names(frozen)
    own = failed(training=False, alive={"cpu": (activations, Role("parameters", 64 * MIB))})
    assert names(own)[0] == "no_grad"
    assert "no_grad" not in names(msgspec.structs.replace(own, phase="backward"))


def test_an_eight_bit_optimizer_and_half_precision_are_not_proposed_twice() -> None:
    assert "optimizer_8bit" not in names(failed(phase="optimizer", optimizers=("AdamW8bit",)))
    halves = tuple(msgspec.structs.replace(group, dtype="bfloat16") for group in BLOCK)
    roles = (Role("activations", 8 * 320 * MIB, halves), Role("parameters", 64 * MIB))
    assert "bf16_autocast" not in names(failed(alive={"cpu": roles}))
    assert "bf16_autocast" in names(failed())


def test_softmax_of_long_attention_is_no_loss() -> None:
    square = Group("out", "softmax", (1, 8, 4096, 4096), "float32", 3 * 512 * MIB, 3)
    roles = (Role("activations", 2 * GIB, (square, *BLOCK)), Role("parameters", 64 * MIB))
    assert "chunked_loss" not in names(failed(alive={"cpu": roles}))


def test_a_layer_as_wide_as_the_batch_is_long_makes_no_pairs() -> None:
    square = Group("up", "addmm", (4096, 4096), "float32", 64 * MIB, 1)
    bias = Group("up.bias", "", (4096,), "float32", 16384, 1)
    roles = (Role("activations", 2 * GIB, (square, *BLOCK)), Role("parameters", 64 * MIB, (bias,)))
    oom = failed(alive={"cpu": roles}, inputs=(Input("x", (4096, 512), "float32", 8 * MIB),))
    assert "fewer_pairs" not in names(oom)
    assert "micro_batch" in names(oom)


def test_micro_batches_are_as_many_as_the_batch_needs() -> None:
    found = by_name(failed(inputs=(Input("x", (9, 256), "float32", MIB),)))["micro_batch"]
    assert found.what.startswith("3 micro-batches of 3"), "not 4"
    assert found.saves == round((5120 + 16 + 256 + 512) * MIB * (1 - 3 / 9))
    few = by_name(failed(inputs=(Input("x", (3, 256), "float32", MIB),)))["micro_batch"]
    assert few.what.startswith("3 micro-batches of 1")


def test_what_a_library_keeps_is_told_by_its_own_setting() -> None:
    kept = (Role("other tensors", 2 * GIB, (Group("", "", (64, 128, 32000), "float32", 2 * GIB, 1),)),)
    trainer = (
        "transformers/trainer.evaluate",
        "transformers/trainer.evaluation_loop",
        "transformers/trainer_pt_utils.add",
    )
    oom = failed(alive={"cpu": kept}, phase="", training=False, asked=GIB, libraries=trainer)
    first = ways(oom)[0]
    assert (first.name, first.fits) == ("evaluation_logits", True) and "preprocess_logits_for_metrics" in first.what
    assert names(msgspec.structs.replace(oom, libraries=trainer[:1]))[0] == "free_references"


def test_every_keeper_of_a_library_is_a_pattern_with_words_of_a_sentence() -> None:
    import re

    from gobrrr.rules.memory.ways import _known

    for keeper in _known("library_keepers.toml")["keeper"]:
        assert re.compile(str(keeper.get("holder") or keeper["function"])) and len(str(keeper["what"]).split()) <= 25, (
            keeper["name"]
        )
        assert 0 <= float(keeper["keeps"]) < 1 and keeper["exact"]


def test_a_batch_padded_to_one_long_row_is_told_by_its_mask() -> None:
    results = Role("forward activations", GIB, (Group("input", "", (200, 64, 9000), "float32", GIB, 1),))
    oom = failed(alive={"cpu": (results,)}, masks=(("mask", (200, 9000), 0.013),))
    first = ways(oom)[0]
    assert first.name == "padding" and first.what.startswith("1.3 % of mask 200x9000 is real")
    assert "padding" not in names(failed(alive={"cpu": (results,)}, masks=(("mask", (200, 9000), 0.8),)))
    assert "padding" not in names(failed(alive={"cpu": (results,)}, masks=(("mask", (200, 9001), 0.01),))), (
        "another one's"
    )


def test_gradients_with_a_graph_are_the_reason_where_there_are_some() -> None:
    assert names(failed(gradient_graphs=True, steps=20))[0] == "gradient_graphs"
    assert "gradient_graphs" not in names(failed(steps=20))


COPIED = {
    "phase": "", "training": None, "optimizers": (), "asked": GIB, "model": "",
    "inputs": (Input("x", (1 << 18, 1024), "float32", GIB), Input("mean", (1 << 18, 1), "float32", MIB)),
    "alive": {"cpu": (Role("variables", 4 * GIB - 160 * MIB),)},
}  # fmt: skip


@pytest.mark.parametrize("line", ["self.x = (x - mean) / std", "return x / scale", "y = 2 * x + x * x"])
def test_a_copy_of_an_array_is_spared_in_place(line: str) -> None:
    assert names(failed(**COPIED))[:1] != ["in_place"], "nobody knows the line"
    first = ways(failed(**COPIED), line)[0]
    assert (first.name, first.saves) == ("in_place", GIB) and "x -= ..." in first.what


@pytest.mark.parametrize("line", ["y = mean * 2  # x - 1", "z = x.float()", "z = other - 1", "z = f(mean) * x[3]"])
def test_other_lines_are_no_copies_of_it(line: str) -> None:
    assert "in_place" not in [way.name for way in ways(failed(**COPIED), line)]


def test_an_update_is_not_made_for_some_rows() -> None:
    oom = failed(phase="optimizer", model="", asked=128 * MIB, inputs=(Input("u", (256,), "int64", 2048),))
    assert "pieces" not in names(oom)


def test_gradients_are_used_up_in_backward_where_there_are_many_parameters() -> None:
    each = tuple(Group(f"blocks.{n}", "", (9, 9), "float32", 16 * MIB, 1) for n in range(4))
    roles = (Role("parameters", 64 * MIB, each), Role("gradients", 64 * MIB))
    few = failed(
        alive={"cpu": roles}, asked=16 * MIB, process=Process(resident=GIB, virtual=4 * GIB - 8 * MIB), phase="backward"
    )
    way = {way.name: way for way in ways(few)}
    assert way["optimizer_in_backward"].saves == 48 * MIB
    assert "optimizer_in_backward" not in names(msgspec.structs.replace(few, optimizers=("LBFGS",)))


@pytest.mark.parametrize(
    ("optimizer", "options", "copies"),
    [("SGD", (), 0), ("SGD", ("momentum",), 1), ("AdamW", (), 2), ("Adam", ("amsgrad",), 3),
     ("RMSprop", ("centered", "momentum"), 3)],
)  # fmt: skip
def test_the_state_to_come_is_that_of_the_optimizers_options(
    optimizer: str, options: tuple[str, ...], copies: int
) -> None:
    roles = (Role("parameters", 64 * MIB), Role("gradients", 64 * MIB), Role("activations", 0))
    oom = failed(alive={"cpu": roles}, steps=0, optimizers=(optimizer,), optimizer_options=options, phase="optimizer")
    assert to_come(oom) == copies * 64 * MIB


def test_a_pair_of_rows_is_no_graph_and_a_small_graph_is_not_sampled() -> None:
    few = (Input("pos", (49, 3), "float32", 588), Input("rows", (2, 400), "int64", 6400))
    assert "sampled_graph" not in names(failed(inputs=few))
    many = (Input("x", (4_900, 3), "float32", 58_800), Input("edge_index", (2, 40_000), "int64", 640_000))
    assert "sampled_graph" in names(failed(inputs=many))


def test_a_model_in_eval_that_learns_needs_its_graph() -> None:
    """Fixed BatchNorm, say: the function that calls the model calls backward."""
    oom = failed(training=False, phase="evaluation")
    assert names(oom)[0] == "no_grad" and "no_grad" not in names(msgspec.structs.replace(oom, learns=True))


def test_fused_updates_are_told_to_optimizers_that_have_them() -> None:
    roles = (Role("parameters", GIB, (Group("*.weight", num_bytes=GIB, count=4),)), Role("gradients", GIB))
    oom = failed(phase="optimizer", steps=3, alive={"cpu": roles}, asked=200 * MIB)
    assert "fused_optimizer" in names(oom)
    for other in ("RMSprop", "LBFGS", "Mine"):
        assert "fused_optimizer" not in names(msgspec.structs.replace(oom, optimizers=(other,)))


@pytest.mark.parametrize("history", [None, 10])
def test_a_short_history_is_no_reason(history: int | None) -> None:
    roles = (Role("optimizer state", 3 * GIB), Role("parameters", 64 * MIB))
    oom = failed(optimizers=("LBFGS",), alive={"cpu": roles}, history_size=history)
    assert "lbfgs_history" not in names(oom)
    assert "lbfgs_history" in names(msgspec.structs.replace(oom, history_size=100))


@pytest.mark.parametrize(
    ("line", "dtype"),
    [("y = torch.flip(x, dims=[-1])", "float32"), ("y = x / 3", "int32"), ("y = x[1:] - 1", "float32")],
)
def test_what_cannot_be_done_in_place_is_not_told(line: str, dtype: str) -> None:
    copied = COPIED | {"inputs": (Input("x", (1 << 18, 1024), dtype, GIB),)}
    assert "in_place" not in [way.name for way in ways(failed(**copied), line)]


def test_a_cache_that_calls_extend_is_no_generation() -> None:
    kept = (Role("other tensors", 2 * GIB, (Group("cache.layers", "", (8, 8, 999, 32), "float32", 2 * GIB, 9),)),)
    oom = failed(
        alive={"cpu": kept}, phase="evaluation", training=False, libraries=("transformers/cache_utils.update",)
    )
    assert names(oom)[0] == "cache_extended"
    generates = (*oom.libraries, "transformers/generation/utils.generate")
    assert names(msgspec.structs.replace(oom, libraries=generates))[0] == "keys_and_values_kept"


def test_tables_that_were_widened_and_stayed_in_the_optimizer_are_named() -> None:
    new, old = (Group(name, "", (rows, 64), "float32", GIB, 1) for name, rows in (("user.weight", 900), ("Adam", 800)))
    state = Group("Adam", "", (800, 64), "float32", 2 * GIB, 2)
    roles = Role("optimizer state", 2 * GIB, (state,)), Role("parameters", 2 * GIB, (new, old))
    oom = failed(phase="optimizer", optimizers=("Adam",), alive={"cpu": roles}, asked=MIB)
    way = by_name(oom)["replaced_parameters"]
    assert way.saves == 3 * GIB and "1 parameter that no module has: if replaced" in way.what
    other = msgspec.structs.replace(old, shape=(3, 7))  # a tensor of its own that is learnt
    roles = roles[0], Role("parameters", 2 * GIB, (new, other))
    assert "replaced_parameters" not in names(msgspec.structs.replace(oom, alive={"cpu": roles}))


def test_numbers_that_are_objects_are_to_be_arrays() -> None:
    held = Role("Python numbers", 2 * GIB, (Group("index", "", (1 << 26,), "float", 2 * GIB, 1),))
    oom = failed(alive={"cpu": (held,)}, phase="evaluation", training=False)
    way = by_name(oom)["arrays"]
    assert way.saves == 2 * GIB * 7 // 8 and way.what.startswith("67,108,864 numbers are Python objects in index")
    assert "numbers that are Python objects, most of it in index" in diagnosis(oom).reason


def test_inner_steps_that_keep_their_graphs_are_told() -> None:
    again = Group("", "tanh_backward", (400, 512), "float32", GIB, 300)
    oom = failed(alive={"cpu": (Role("activations", 2 * GIB, (again,)),)}, phase="")
    assert "of 300 inner steps" in by_name(oom)["first_order"].what
    deep = Role("parameters", MIB, (Group("layers.*", "", (8, 8), "float32", MIB, 400),))
    assert "first_order" not in names(failed(alive={"cpu": (Role("activations", 2 * GIB, (again,)), deep)}, phase=""))


def test_one_long_sample_is_computed_in_pieces() -> None:
    speech = Input("speech", (1, 6_720_000), "float32", 26 * MIB)
    oom = failed(inputs=(speech,), of_model=True, phase="evaluation", training=False, optimizers=(), asked=GIB)
    assert "1x6720000 is one sample" in by_name(oom)["pieces_of_sample"].what
    for shape in ((1, 512), (1, 50_257), (1, 3, 4096, 4096)):
        other = msgspec.structs.replace(speech, shape=shape)
        assert "pieces_of_sample" not in names(msgspec.structs.replace(oom, inputs=(other,)))


def test_a_list_of_bytes_as_floats_keeps_its_type() -> None:
    frames = Group("frames", "", (4, 84, 84), "uint8", 100 * MIB, 4001)
    oom = failed(alive={"cpu": (Role("arrays", 100 * MIB, (frames,)),)}, asked=400 * MIB - 4000, phase="", inputs=())
    assert by_name(oom)["keep_type"].what.startswith("frames, uint8, is 4 times as large here")
    assert "keep_type" not in names(msgspec.structs.replace(oom, asked=300 * MIB))


def test_a_table_in_the_failed_lines_makes_pairs_too() -> None:
    table = Role("variables", 3 * MIB, (Group("z", "", (19717, 32), "float32", 3 * MIB, 1),))
    oom = failed(alive={"cpu": (table,)}, asked=19717 * 19717 * 4, phase="", inputs=())
    assert "each pair of 19717 rows" in by_name(oom)["fewer_pairs"].what


def test_what_a_hook_keeps_goes_first() -> None:
    kept = Group("forward hook gap.<locals>.<lambda>", "", (32, 96), "float32", 2 * GIB, 300)
    oom = failed(alive={"cpu": (Role("other tensors", 2 * GIB, (kept,)),)})
    assert "handle.remove()" in ways(oom)[0].what


def test_who_holds_models_of_earlier_trials_is_named() -> None:
    way = by_name(failed(phase="optimizer", repeated=4, repeated_in="AcceleratedOptimizer.optimizer"))["old_models"]
    assert "held by AcceleratedOptimizer.optimizer: accelerator.free_memory()" in way.what
