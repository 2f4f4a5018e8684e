"""Extras that use torch's profilers, odd tensors, copies, schedules and averages."""

from tests.fuzz.grammar import EXTRA, piece

# profilers

piece(
    EXTRA,
    "torch.profiler with a schedule",
    setup="""
from torch.profiler import ProfilerActivity, profile, schedule

tables = []
running = profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=25, warmup=2, active=3, repeat=4),
    on_trace_ready=lambda p: tables.append(sorted((e.key, e.count) for e in p.key_averages())),
)
running.start()
""",
    after="running.step()",
    end="running.stop(); say(len(tables), digest(tables), tables[:1])",
)
piece(
    EXTRA,
    "torch.profiler with stacks",
    setup="""
from torch.profiler import ProfilerActivity, profile

stacks = []
""",
    around="(profiler := profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True,"
    " profile_memory=True) if k % 25 == 24 else contextlib.nullcontext())",
    after="""
if k % 25 == 24:
    names = {e.name for e in profiler.events()}
    stacks.append(sorted(n for n in names if "program.py" in n or "gobrrr" in n))
""",
    end="say(len(stacks), digest(stacks), [s for n in stacks for s in n if 'gobrrr' in s])",
)
piece(
    EXTRA,
    "autograd profiler",
    setup="counts = []",
    around="""
(old := torch.autograd.profiler.profile(use_kineto=True) if k % 20 == 19 else contextlib.nullcontext())
""",
    after="""
if k % 20 == 19:
    counts.append(sorted((e.key, e.count) for e in old.key_averages()))
""",
    end="say(len(counts), digest(counts), counts[:1])",
)
piece(
    EXTRA,
    "legacy profiler",
    setup="""
import torch.autograd.profiler_legacy as legacy

legacies = []
""",
    around="(old := legacy.profile() if k % 3 == 0 else contextlib.nullcontext())",
    after="""
if k % 3 == 0:
    legacies.append(len(old.function_events))
""",
    end="say(len(legacies), digest(legacies))",
)
piece(EXTRA, "record_function", around="torch.profiler.record_function('mine')")
piece(
    EXTRA,
    "execution trace observer",
    weight=0.5,
    setup="""
from torch.profiler import ExecutionTraceObserver

observer = ExecutionTraceObserver().register_callback(os.path.abspath("observed.json"))
observer.start()
""",
    end="""
observer.stop()
observer.unregister_callback()
import json
nodes = json.load(open("observed.json"))["nodes"]
say(len(nodes), digest([n["name"] for n in nodes]))
os.remove("observed.json")
""",
)

# odd tensors

piece(
    EXTRA,
    "sparse meta quantized",
    after="""
if k % 30 == 5:
    odd = [torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.ones(2, device="meta"),
           torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), torch.ones(2, dtype=torch.float8_e4m3fn)]
    say([(str(t.layout), str(t.dtype), t.device.type) for t in odd], odd[3].int_repr().tolist())
""",
)
piece(
    EXTRA,
    "sparse gradients",
    setup="words = nn.Embedding(50, 4, sparse=True)\nsparse = torch.optim.SparseAdam("
    "list(words.parameters()), lr=0.01)",
    after="""
sparse.zero_grad()
words(torch.randint(0, 50, (6,))).square().sum().backward()
sparse.step()
""",
    end="say(digest(words.weight), digest(sparse.state_dict()['state']))",
)
piece(
    EXTRA,
    "nested and masked",
    after="""
if k % 40 == 8:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)
    say(digest(torch.nested.to_padded_tensor(ragged, 0.0)))
""",
)
piece(
    EXTRA,
    "denormals",
    after="""
if k % 40 == 9:
    say((torch.full((3,), 1e-39) * 0.5).tolist(), torch.set_flush_denormal(k % 80 == 9))
""",
)
piece(
    EXTRA,
    "storages shared",
    setup="base = torch.zeros(64)\nbase.share_memory_()",
    after="""
base[k % 64] += 1
view = base.view(8, 8).t()
losses.append((view.is_shared(), view.untyped_storage().nbytes(), view._base is base))
""",
    end="say(digest(base))",
)
piece(
    EXTRA,
    "numpy views",
    setup="array = np.zeros(16, dtype=np.float32)\nseen_by = torch.from_numpy(array)",
    after="""
array += np.float32(loss.item())
losses.append(seen_by.sum().item().hex())
""",
)
piece(
    EXTRA,
    "module called in a module's hook",
    setup="""
inner, in_hook = nn.Linear(4, 2), []
model.register_forward_hook(lambda m, args, out: in_hook.append(inner(out.detach()).sum().item().hex()))
""",
    end="say(len(in_hook), digest(in_hook))",
)
piece(
    EXTRA,
    "global module hooks",
    setup="""
from torch.nn.modules import module as modules

walked = []
g1 = modules.register_module_forward_pre_hook(lambda m, args: walked.append(type(m).__name__))
g2 = modules.register_module_full_backward_hook(lambda m, gi, go: walked.append(len(go)))
""",
    end="g1.remove(); g2.remove(); say(len(walked), digest(walked))",
)

# copies, schedules, averages

piece(
    EXTRA,
    "pickled and copied",
    setup="import copy, io, pickle\npickles = []",
    after="""
if k % 30 == 12:
    try:
        twin = copy.deepcopy(model)
        pickles.append(digest(twin.state_dict()))
        pickles.append(digest(pickle.loads(pickle.dumps(model)).state_dict()))
    except Exception as error:
        pickles.append(type(error).__name__)
    pickles.append(len(pickle.dumps(optimizer.state_dict())))
""",
    end="say(pickles[-3:], digest(pickles))",
)
piece(
    EXTRA,
    "optimizer and loader copied",
    setup="import copy, pickle\ncopies = []",
    after="""
if k % 30 == 13:
    for thing in (optimizer, globals().get("loader")):
        try:
            copies.append((type(copy.deepcopy(thing)).__name__, len(pickle.dumps(thing))))
        except Exception as error:
            copies.append((type(error).__name__, str(error)[:80]))
""",
    end="say(copies[-2:], digest(copies))",
)
piece(
    EXTRA,
    "checkpoint written",
    after="""
if k % 50 == 40:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"step{k}.pt")
""",
)
piece(
    EXTRA,
    "checkpoint read back",
    after="""
if k == 60:
    torch.save(model.state_dict(), "state.pt")
if k == 130:
    say(model.load_state_dict(torch.load("state.pt")))
""",
)
piece(
    EXTRA,
    "learning rates",
    setup="""
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [
    torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20),
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)], milestones=[20])
""",
    after="scheduler.step()",
    end="say([lr.hex() for lr in scheduler.get_last_lr()])",
)
piece(
    EXTRA,
    "one cycle",
    setup="""
cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=2 * STEPS, cycle_momentum=False)
""",
    after="cycle.step()",
    end="say(cycle.get_last_lr())",
)
piece(
    EXTRA,
    "averaged weights",
    setup="""
averaged = torch.optim.swa_utils.AveragedModel(
    nn.Linear(16, 4), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
averaging = nn.Linear(16, 4)
""",
    after="averaging.weight.data.add_(loss.item()); averaged.update_parameters(averaging)",
    end="say(digest(averaged.state_dict()))",
)
piece(
    EXTRA,
    "ema by hand",
    setup="ema = {n: p.detach().clone() for n, p in model.named_parameters()}",
    after="""
with torch.no_grad():
    for name, p in model.named_parameters():
        ema[name].lerp_(p, 0.1)
""",
    end="say(digest(ema))",
)
piece(EXTRA, "torch random forked", around="torch.random.fork_rng()")
piece(
    EXTRA,
    "threads of torch set",
    after="""
if k == 90:
    torch.set_num_threads(2)
    say(torch.get_num_threads(), torch.get_num_interop_threads())
""",
)
piece(
    EXTRA,
    "memory looked at",
    after="""
if k % 90 == 45:
    alive = [t for t in gc.get_objects() if isinstance(t, torch.Tensor)]
    say(sum(type(t) is nn.Parameter for t in alive))
""",
)
