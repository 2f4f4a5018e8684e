"""Remedies and edits of what goes around the ranks: arguments of wrappers, one sum per update, many sums as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from gobrrr.recording.model.facts import Wrapper
from gobrrr.remedies import registry
from gobrrr.remedies.edits import catalogue
from gobrrr.remedies.edits.program import files_of
from gobrrr.remedies.mechanism.seams import Seams
from gobrrr.remedies.ranks import ranks
from tests.support.patching import patched
from tests.support.report_samples import starved

torch = pytest.importorskip("torch")

HEAD = "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
TRAINS = HEAD + "model = DDP(torch.nn.Linear(4, 1))\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
BEFORE_UPDATES = (
    ("for i, x in enumerate(data):\n    model(x).sum().backward()\n"
     "    if (i + 1) % 4 == 0:\n        optimizer.step()\n",
     "    model.require_backward_grad_sync = (i + 1) % 4 == 0\n    model(x)"),
    ("for x in data:\n    n += 1\n    last = n % 4 == 0\n    model(x).sum().backward()\n"
     "    if last:\n        optimizer.step()\n", "    model.require_backward_grad_sync = last\n    model(x)"),
    ("for x in data:\n    state['n'] += 1\n    model(x).sum().backward()\n"
     "    if state['n'] % 4 == 0:\n        optimizer.step()\n",
     "    state['n'] += 1\n    model.require_backward_grad_sync = state['n'] % 4 == 0\n    model(x)"),
    ("for x in data:\n    for j in range(k):\n        model(x[j]).sum().backward()\n    optimizer.step()\n",
     "        model.require_backward_grad_sync = j == k - 1\n        model(x[j])"),
)  # fmt: skip
NO_PLACE = (
    "for x in data:\n    model(x).sum().backward()\n    optimizer.step()\n",  # each pass is an update
    # known too late, and by a function that may not be asked twice
    "for x in data:\n    model(x).sum().backward()\n    n += 1\n    if n % 4 == 0:\n        optimizer.step()\n",
    "for x in data:\n    model(x).sum().backward()\n    if ready():\n        optimizer.step()\n",
    "for i, x in enumerate(data):\n    with model.no_sync():\n        model(x).sum().backward()\n"
    "    if i % 4 == 0:\n        optimizer.step()\n",
    "for i, x in enumerate(data):\n    other(x).sum().backward()\n    if i % 4 == 0:\n        optimizer.step()\n",
    "for i, x in enumerate(data):\n    model(x).sum().backward()\n    if i % 4 == 0:\n        scheduler.step()\n",
)  # fmt: skip
PASS = "    model(x).sum().backward()\n"
FOUR = "    if (i + 1) % 4 == 0:\n        optimizer.step()\n"
EACH = "for i, x in enumerate(data):\n"
OFTEN_WRONG = {
    "another step": EACH + PASS + "    optimizer.step()\n    if i % 9 == 0:\n        warmup.step()\n",
    "two optimizers": "other = torch.optim.SGD(net.parameters())\n" + EACH + PASS + "    other.step()\n" + FOUR,
    "two branches": EACH + PASS + FOUR + "    if i + 1 == len(data):\n        optimizer.step()\n",
    "a rest behind": EACH + PASS + FOUR + "optimizer.step()\n",
    "update before": EACH + "    if i and i % 4 == 0:\n        optimizer.step()\n" + PASS,
    "skipped last": "for x in data:\n    for j in range(k):\n        if ok(x):\n            break\n"
    "        model(x[j]).sum().backward()\n    optimizer.step()\n",
    "another loop": EACH + PASS + FOUR + "for x in more:\n    model(x).sum().backward()\n",
    "a list grows": EACH + "    losses.append(x)\n" + PASS + "    if len(losses) == 4:\n        optimizer.step()\n",
    "a method counts": EACH + "    self.tick()\n" + PASS + "    if self.n % 4 == 0:\n        optimizer.step()\n",
    "clipped each time": EACH + PASS + "    clip_grad_norm_(model.parameters(), 1.0)\n" + FOUR,
    "gradients are read": EACH + PASS + "    log(model.weight.grad)\n" + FOUR,
    "the bound changes": "for x in data:\n    for j in range(k):\n        k = 3\n"
    "        model(x[j]).sum().backward()\n    optimizer.step()\n",
    "a queue is emptied": "while queue:\n    x = queue.pop()\n"
    + PASS
    + "    if not queue:\n        optimizer.step()\n",
    "a tensor counts": "count = torch.zeros(())\nfor x in data:\n    count.add_(1)\n"
    + PASS
    + "    if count % 4 == 0:\n        optimizer.step()\n",
    "ranks count otherwise": "for x in data:\n    n += x.numel()\n"
    + PASS
    + "    if n > 99:\n        optimizer.step()\n",
    "a function counts": "for x in data:\n    tick(state)\n"
    + PASS
    + "    if state['n'] % 4 == 0:\n        optimizer.step()\n",
    "a global counts": "def tick():\n    global n\n    n += 1\nfor x in data:\n    tick()\n"
    + PASS
    + "    if n % 4 == 0:\n        optimizer.step()\n",
    "a property": "for x in data:\n" + PASS + "    if timer.due:\n        optimizer.step()\n",
    "clipped in a function": "def clip(m):\n    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n"
    + EACH
    + PASS
    + "    clip(model)\n"
    + FOUR,
    "the model is handed over": EACH + PASS + "    log_norms(model)\n" + FOUR,
    "uneven ranks": "with model.join():\n    " + EACH + "    " + PASS + "        if (i + 1) % 4 == 0:\n"
    "            optimizer.step()\n",
    "a hook": "model.register_comm_hook(None, hook)\n" + EACH + PASS + FOUR,
    "optimizers in a list": "opts = [torch.optim.SGD(model.parameters())]\n"
    + EACH
    + PASS
    + "    for o in opts:\n        o.step()\n"
    + FOUR,
    "optimizer of a function": "other, plan = configure(model)\n" + EACH + PASS + "    other.step()\n" + FOUR,
    "joined": "uneven = model.join() if late else null()\nwith uneven:\n    "
    + EACH
    + "    "
    + PASS
    + "        if (i + 1) % 4 == 0:\n            optimizer.step()\n",
    "a static graph": "model = DDP(net, static_graph=True)\n" + EACH + PASS + FOUR,
    "a schedule-free optimizer": "free = lib.AdamWScheduleFree(rest)\n" + EACH + PASS + "    free.step()\n" + FOUR,
    "a library changes the plan": EACH + PASS + "    adapt(plan)\n    if (i + 1) % plan.every == 0:\n"
    "        optimizer.step()\n",
    "weights are handed over": "net = torch.nn.Linear(4, 1)\nmodel = DDP(net)\n"
    + EACH
    + PASS
    + "    lib.clip(net.parameters(), 0.5)\n"
    + FOUR,
    "an update by another name": "other = torch.optim.SGD(net.parameters())\nupdate = other.step\n"
    + EACH
    + PASS
    + "    update()\n"
    + FOUR,
    "optimizers are handed over": EACH + PASS + "    lib.step_of(optimizer)\n" + FOUR,
    "a watcher of the model": "watcher = lib.Watcher(model)\n" + EACH + PASS + "    watcher.after_backward()\n" + FOUR,
    "another hook": "lib.register_multi_grad_hook(weights, log)\n" + EACH + PASS + FOUR,
    "gradients by getattr": "for p in net.parameters():\n    norms.append(getattr(p, 'grad'))\n" + EACH + PASS + FOUR,
    "counted at times": "n = 0\nfor x in data:\n    if x.mean() > 0:\n        n += 1\n"
    + PASS
    + "    if n % 4 == 0:\n        optimizer.step()\n",
    "ranks differ": "every = 4 if dist.get_rank() else 2\n"
    + EACH
    + PASS
    + "    if (i + 1) % every == 0:\n        optimizer.step()\n",
    "buffers of its own": "class Codes(torch.nn.Module):\n    def __init__(self):\n"
    "        self.register_buffer('codes', x)\n" + EACH + PASS + FOUR,
    "a part is handed over": "raw = model.module\n" + EACH + PASS + "    lib.limit(raw)\n" + FOUR,
    "weights one by one": EACH + PASS + "    for p in model.parameters():\n        lib.norm(p)\n" + FOUR,
    "a closure": "def after():\n    lib.norms(model)\n" + EACH + PASS + "    after()\n" + FOUR,
    "kept in an object": "trainer.model = model\n" + EACH + PASS + "    trainer.after_backward()\n" + FOUR,
    "in a list": "cbs = [lib.Norms(model)]\n"
    + EACH
    + PASS
    + "    for cb in cbs:\n        cb.after_backward()\n"
    + FOUR,
    "of a rank by another name": "local = dist.get_rank()\nevery = 4 if local else 2\n"
    + EACH
    + PASS
    + "    if (i + 1) % every == 0:\n        optimizer.step()\n",
    "of the environment": "every = int(os.environ['LOCAL_RANK']) + 2\n"
    + EACH
    + PASS
    + "    if (i + 1) % every == 0:\n        optimizer.step()\n",
    "at times": EACH + "    if x.any():\n        model(x).sum().backward()\n" + FOUR,
}
COUNTS = "counts = {'a': torch.tensor(3), 'b': torch.tensor([1.5, 2.5]), 'c': torch.tensor(2**53 + 1)}\n"
ONE_BY_ONE = (
    "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= 2\n",
    "for n, p in model.named_parameters():\n    if p.grad is not None:\n        dist.all_reduce(p.grad.data)\n",
    COUNTS
    + "for name, value in counts.items():\n    dist.all_reduce(value, op=dist.ReduceOp.SUM)\n    value.sum().item()\n",
)
NOT_TOGETHER = (
    "for p in model.parameters():\n    p.grad.clamp_(-1, 1)\n    dist.all_reduce(p.grad)\n",
    "for p in model.parameters():\n    waits.append(dist.all_reduce(p.grad, async_op=True))\n",
    "for value in drawn():\n    dist.all_reduce(value)\n",
    "for p in model.parameters():\n    dist.all_reduce(norm)\n",
    "for p in model.parameters():\n    dist.broadcast(p, 0)\n",
    "for name, value in counts.items():\n    dist.all_reduce(value, op=OPS[name])\n",
    "for value in counts.values():\n    dist.all_reduce(value, dist.ReduceOp.SUM, None, True)\n",
    "for value in counts.values():\n    dist.all_reduce(value)\n    if value > 3:\n        break\n",
    "for a in [x, y]:\n    dist.all_reduce(a)\n    y += a\n",
    "for p in model.parameters():\n    dist.all_reduce(p.grad)\nprint(p)\n",
    "for value in counts.values():\n    dist.all_reduce(value)\nimport json\n",
    *(
        COUNTS + loop
        for loop in (
            "for v in counts.values():\n    dist.all_reduce(v)\n    counts['a'] += v\n",
            "for v in counts.values():\n    dist.all_reduce(v, op=op)\n    op = dist.ReduceOp.MAX\n",
            "for v in counts.values():\n    dist.all_reduce(v, op=ops.pop(0))\n",
            "for v in counts.values():\n    dist.all_reduce(v, group=next(groups))\n",
            "for v in counts.values():\n    dist.all_reduce(v)\n    if v > 3:\n        raise StopIteration\n",
            "def f():\n    for v in counts.values():\n        dist.all_reduce(v)\n        yield v\n",
            "for v in counts.values():\n    dist.all_reduce(v)\n    later.add_(v)\n",
            "for v in counts.values():\n    dist.all_reduce(v)\n    mixed(counts)\n",
            "for v in counts.values():\n    dist.all_reduce(v)\n    total += v\n",
            "for v in counts.values():\n    dist.all_reduce(v)\n    total[0] = v\n",
            "for v in counts.values():\n    dist.all_reduce(v)\n    self.total += v\n",
        )
    ),
    "for a in [x, y]:\n    dist.all_reduce(a)\n    y.add_(a)\n",
    "for n, p in model.named_parameters(remove_duplicate=False):\n    dist.all_reduce(p.grad)\n",
    "for a in (x, y, x):\n    dist.all_reduce(a)\n    a /= 2\n",
    "for total, v in (pairs):\n    dist.all_reduce(v)\n    total += v\n",
    "for total, v in ((b, a), (c, b)):\n    dist.all_reduce(v)\n    total += v\n",
    "for v in (loss, count):\n    dist.all_reduce(v)\n    v /= count\n",
    "for v in (a, b):\n    dist.all_reduce(v)\n    if b > 3:\n        v.zero_()\n",
    "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.grad = p.grad / last.grad.norm()\n",
    "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.twin.grad.add_(p.grad)\n",
    "all_reduce_together = lambda x: x\nfor p in model.parameters():\n    dist.all_reduce(p.grad)\n",
    "vs = [x, y, x]\nfor v in vs:\n    dist.all_reduce(v)\n    v /= 2\n",
    "for v in (buf[0], buf[1]):\n    dist.all_reduce(v)\n    v /= 2\n",
    "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    opt.step()\n",
    "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    net.loss().backward()\n",
    "parts = []\nwith made() as parts:\n    for t in parts:\n        dist.all_reduce(t)\n        t /= 2\n",
    "def all_reduce_together(x):\n    return x\nfor p in model.parameters():\n    dist.all_reduce(p.grad)\n",
    "for s in data:\n    if s:\n        print(p)\n    for p in model.parameters():\n        dist.all_reduce(p.grad)\n",
    "def sync(model):\n    for p in model.parameters():\n        dist.all_reduce(p.grad)\nsync(model)\nimport json\n",
)


def edited(name: str, text: str) -> str:
    change = catalogue.edit(name).change
    assert change is not None
    return patched(text, [change])


@pytest.mark.parametrize(("loop", "there"), BEFORE_UPDATES)
def test_gradients_are_summed_in_the_last_pass_before_an_update(loop: str, there: str) -> None:
    after = edited("no_sync", TRAINS + loop)
    assert there in after.replace("(k) - 1", "k - 1") and compile(after, "t.py", "exec")


@pytest.mark.parametrize("loop", NO_PLACE)
def test_where_the_last_pass_is_not_known_in_time_nothing_changes(loop: str) -> None:
    assert edited("no_sync", TRAINS + loop) == TRAINS + loop


@pytest.mark.parametrize("loop", OFTEN_WRONG.values(), ids=OFTEN_WRONG)
def test_an_update_without_summed_gradients_is_never_made(loop: str) -> None:
    assert edited("no_sync", TRAINS + loop) == TRAINS + loop


def test_an_option_that_is_called_accumulate_is_no_call_of_it() -> None:
    loop = EACH + PASS + "    if (i + 1) % args.accumulate == 0:\n        optimizer.step()\n"
    assert "require_backward_grad_sync = (i + 1) % args.accumulate == 0" in edited("no_sync", TRAINS + loop)


def test_every_wrapped_model_of_the_pass_is_flagged() -> None:
    text = TRAINS + "enc = DDP(torch.nn.Linear(4, 4))\n" + EACH + "    model(enc(x)).sum().backward()\n" + FOUR
    assert edited("no_sync", text).count("require_backward_grad_sync = (i + 1) % 4 == 0") == 2


@pytest.mark.parametrize("loop", ONE_BY_ONE)
def test_what_is_summed_one_by_one_is_summed_as_one_tensor(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks that hold the same: each sum is twice its tensor, whatever the shapes and types."""
    sums: list[int] = []

    def twice(tensor: Any, *_: Any, **__: Any) -> None:
        sums.append(tensor.numel())
        tensor.mul_(2)

    monkeypatch.setattr(torch.distributed, "all_reduce", twice)
    found = []
    for text in (HEAD + loop, edited("summed_together", HEAD + loop)):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
        model(torch.ones(1, 3)).sum().backward()
        sums.clear()
        names: dict[str, Any] = {"model": model}
        exec(compile(text, "t.py", "exec"), names)
        counts = [value.tolist() for value in names.get("counts", {}).values()]
        found.append(([p.grad.tolist() for p in model.parameters()], counts, len(sums)))
    assert found[0][:2] == found[1][:2] and found[1][2] < found[0][2]


@pytest.mark.parametrize("loop", NOT_TOGETHER)
def test_what_needs_its_order_or_cannot_be_read_twice_stays(loop: str) -> None:
    assert edited("summed_together", HEAD + loop) == HEAD + loop


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one rank, in memory."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("name", "given", "attribute", "value"),
    [("bucket_views", {}, "gradient_as_bucket_view", True), ("static_graph", {}, "static_graph", True),
     ("no_unused_search", {"find_unused_parameters": True}, "find_unused_parameters", False),
     ("bucket_size", {"bucket_cap_mb": 1}, "bucket_bytes_cap", 25 << 20)],
)  # fmt: skip
def test_a_wrapper_is_made_with_another_argument_until_remedies_go(
    alone: None, name: str, given: dict[str, Any], attribute: str, value: object
) -> None:
    said, declined = dict[str, str](), dict[str, str]()
    seams = Seams(said.__setitem__, declined=declined.__setitem__)
    ddp = torch.nn.parallel.DistributedDataParallel
    before = getattr(ddp(torch.nn.Linear(2, 1), **given), attribute)
    registry.remedy(name).apply(seams)
    assert before != value == getattr(ddp(torch.nn.Linear(2, 1), **given), attribute) and name in said
    said.clear()
    keyword = {"bucket_cap_mb": 100} if name == "bucket_size" else {attribute: value}
    ddp(torch.nn.Linear(2, 1), **keyword)
    assert name in declined and not said
    seams.remove()
    assert getattr(ddp(torch.nn.Linear(2, 1), **given), attribute) == before


def test_a_call_that_fits_no_signature_fails_as_by_itself(alone: None) -> None:
    seams = Seams()
    registry.remedy("bucket_views").apply(seams)
    with pytest.raises(TypeError, match="nonsense"):
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1), nonsense=1)
    seams.remove()


def test_remedies_of_wrappers_are_for_several_ranks_whose_wrappers_lack_them() -> None:
    searches = Wrapper(id=1, bucket_bytes=1 << 20, ranks=2, find_unused_parameters=True)
    plain = Wrapper(id=1, bucket_bytes=25 << 20, ranks=2)
    for name in ("bucket_size", "no_unused_search"):
        known = registry.remedy(name)
        assert known.is_pointless(replace(starved(), wrappers=(searches,)))
        assert not known.is_pointless(replace(starved(), world_size=2, wrappers=(searches,)))
        assert known.is_pointless(replace(starved(), world_size=2, wrappers=(plain,)))
    assert registry.remedy("gathered_weights").is_pointless(replace(starved(), world_size=2, wrappers=(plain,)))
    assert not registry.remedy("gathered_weights").is_pointless(replace(starved(), world_size=2))


def test_the_functions_whose_arguments_are_set_are_there() -> None:
    """They are reached by name, so that torch's own word decides."""
    for name in (ranks.DDP, ranks.FSDP):
        seams = Seams()
        ranks.change_calls(seams, name, lambda given: None)
        seams.remove()


def test_the_script_behind_a_launcher_is_the_program(tmp_path: Any) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    for words in (["torchrun", "--nproc-per-node", "2"], ["python", "-m", "torch.distributed.run"], ["python"]):
        assert [file.name for file in files_of([*words, "train.py", "--lr", "1"], tmp_path)] == ["train.py"]
    (tmp_path / "resnet.py").write_text("import torch\n")
    assert files_of(["python", "train.py", "-m", "resnet"], tmp_path)[0].name == "train.py"
