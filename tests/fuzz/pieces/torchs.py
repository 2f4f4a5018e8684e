"""Extras that use torch's own features: autograd, modes, transforms, profilers, odd tensors, copies, schedules."""

from tests.fuzz.grammar import EXTRA, piece

# autograd

piece(EXTRA, "in-place on a saved tensor", setup="wrong, side = [], torch.randn(16, 16, requires_grad=True)", after="""
h = torch.sigmoid(x @ side)
z = h.square().sum()
h.detach().zero_()
side.grad = None
try:
    z.backward()
    wrong.append(side.grad.sum().item().hex())
except RuntimeError as error:
    wrong.append(type(error).__name__)
""", end="say(digest(wrong), sorted(set(wrong))[:3])")
piece(EXTRA, "backward twice", setup="twice = []", after="""
if k % 7 == 0:
    z = (model(x) * 1.0).exp().sum()
    try:
        z.backward()
        z.backward()
    except RuntimeError as error:
        twice.append(str(error))
    model.zero_grad()
""", end="say(len(twice), sorted(set(twice)))")
piece(EXTRA, "saved_tensors_hooks", setup="packed = []", around="""
torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t.shape), t.clone())[1], lambda t: t)
""", end="say(len(packed), digest(packed))")
piece(EXTRA, "save_on_cpu sometimes", around="""
(torch.autograd.graph.save_on_cpu() if k % 5 == 0 else contextlib.nullcontext())
""")
piece(EXTRA, "saved tensors looked at", setup="looked = []", after="""
out = model(x).exp()
looked.append((type(out.grad_fn).__name__, hasattr(out.grad_fn, "_saved_result")))
if hasattr(out.grad_fn, "_saved_result"):
    looked.append((out.grad_fn._saved_result is out, out.grad_fn._saved_result.data_ptr() == out.data_ptr(),
                   out.grad_fn._saved_result._version))
    raw = out.grad_fn._raw_saved_result
    try:
        raw.register_hooks(lambda t: t * 2, lambda t: t / 2)
    except RuntimeError as error:
        looked.append(str(error)[:60])
""", end="say(digest(looked), looked[-3:])")
piece(EXTRA, "anomaly mode", around="torch.autograd.set_detect_anomaly(k % 3 == 0)")
piece(EXTRA, "anomaly found", setup="found = []", after="""
if k % 20 == 10:
    with torch.autograd.detect_anomaly():
        try:
            w = torch.zeros(4, requires_grad=True)
            (w.sqrt() * 0).sum().backward()
        except RuntimeError as error:
            found.append(str(error))
""", end="say(len(found), sorted(set(found)))")
piece(EXTRA, "deterministic algorithms", setup="torch.use_deterministic_algorithms(True)")
piece(EXTRA, "graph walked", setup="nodes = []", after="""
out, todo, seen_nodes = model(x), [], set()
todo.append(out.grad_fn)
while todo:
    node = todo.pop()
    if node is not None and node not in seen_nodes:
        seen_nodes.add(node)
        nodes.append((node.name(), len(node.metadata)))
        todo += [child for child, _ in node.next_functions]
""", end="say(len(nodes), digest(nodes), nodes[-2:])")
piece(EXTRA, "multi-grad hook", setup="multi = []", before="""
ps = [p for p in model.parameters() if p.requires_grad]
handle = torch.autograd.graph.register_multi_grad_hook(ps, lambda gs: multi.append(sum(g is not None for g in gs)))
""", after="handle.remove()", end="say(len(multi), multi[-1:])")
piece(EXTRA, "versions printed", after="""
if k % 60 == 30:
    say([t._version for t in (*model.parameters(), *model.buffers())], x._version)
""")
piece(EXTRA, "graphs held", setup="held = []", after="held.append(loss); del held[:-50]")
piece(EXTRA, "gradients frozen and thawed", after="""
if k in (50, 100):
    next(iter(model.parameters())).requires_grad_(k == 100)
""")

# torch.func and compile

piece(EXTRA, "jacobian", after="""
if k % 10 == 0:
    say("jacobian", digest(torch.func.jacrev(torch.tanh)(x[0]).sum().item()), torch.func.hessian(
        lambda v: (v ** 3).sum())(x[0, :3]).sum().item().hex())
""")
piece(EXTRA, "vmap in each step", setup="mapped = []", after="""
mapped.append(torch.vmap(lambda row: torch.func.grad(lambda v: (v * v).sum())(row))(x.detach() * 1.0).sum().item())
""", end="say(digest(mapped))")
piece(EXTRA, "linearize and jvp", after="""
if k % 11 == 0:
    out, tangent = torch.func.jvp(torch.sin, (x.detach() * 1.0,), (torch.ones_like(x),))
    say("jvp", digest([out, tangent]))
""")
piece(EXTRA, "compiled function", weight=0.5, setup="""
@torch.compile(backend="eager")
def smooth(v, weight):
    return torch.tanh(v) * weight + v.mean()
""", after="losses.append(smooth(loss.detach(), k % 2 + 1.0).item().hex())")
piece(EXTRA, "make_fx", setup="from torch.fx.experimental.proxy_tensor import make_fx", after="""
if k % 70 == 35:
    say(make_fx(lambda v: torch.tanh(v) @ v.T)(torch.ones(2, 3)).code)
""")
piece(EXTRA, "jit traced meanwhile", after="""
if k % 50 == 25:
    traced = torch.jit.trace(nn.Sequential(nn.Linear(16, 4), nn.ReLU()), torch.ones(1, 16))
    say(traced.code, digest(traced(torch.ones(1, 16))))
""")
piece(EXTRA, "fx traced meanwhile", setup="import torch.fx", after="""
if k % 50 == 20:
    say(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(16, 4), nn.ReLU())).graph)
""")
piece(EXTRA, "export", weight=0.3, after="""
if k == 120:
    program = torch.export.export(nn.Linear(16, 4), (torch.ones(2, 16),))
    say([node.name for node in program.graph.nodes])
""")

# modes

piece(EXTRA, "dispatch mode", setup="""
from torch.utils._python_dispatch import TorchDispatchMode

ops = []


class Listing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        ops.append(str(function))
        return function(*args, **(kwargs or {}))
""", around="Listing()", end="say(len(ops), digest(ops))")
piece(EXTRA, "dispatch mode around all", start="ops_of_all = []", setup="""
from torch.utils._python_dispatch import TorchDispatchMode


class Around(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        ops_of_all.append(str(function))
        return function(*args, **(kwargs or {}))


around_all = Around()
around_all.__enter__()
""", end="around_all.__exit__(None, None, None); say(len(ops_of_all), digest(ops_of_all))")
piece(EXTRA, "function mode", setup="""
from torch.overrides import TorchFunctionMode

functions = []


class Named_(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        functions.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))


mode = Named_()
mode.__enter__()
""", end="mode.__exit__(None, None, None); say(len(functions), digest(functions))")
piece(EXTRA, "flop counter", weight=0.5, setup="""
from torch.utils.flop_counter import FlopCounterMode

counter = FlopCounterMode(display=False)
""", around="(counter if k % 4 == 0 else contextlib.nullcontext())", end="say(counter.get_total_flops())")
piece(EXTRA, "default device", around="torch.device('cpu')")
piece(EXTRA, "grad mode switched", after="""
torch.set_grad_enabled(False)
losses.append(model(x).sum().item().hex())
torch.set_grad_enabled(True)
say(torch.is_grad_enabled()) if k % 100 == 0 else None
""")

# profilers

piece(EXTRA, "torch.profiler with a schedule", setup="""
from torch.profiler import ProfilerActivity, profile, schedule

tables = []
running = profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=25, warmup=2, active=3, repeat=4),
    on_trace_ready=lambda p: tables.append(sorted((e.key, e.count) for e in p.key_averages())),
)
running.start()
""", after="running.step()", end="running.stop(); say(len(tables), digest(tables), tables[:1])")
piece(EXTRA, "torch.profiler with stacks", setup="""
from torch.profiler import ProfilerActivity, profile

stacks = []
""", around="(profiler := profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True,"
    " profile_memory=True) if k % 25 == 24 else contextlib.nullcontext())", after="""
if k % 25 == 24:
    names = {e.name for e in profiler.events()}
    stacks.append(sorted(n for n in names if ".py" in n and "threading.py" not in n))
""", end="say(len(stacks), digest(stacks), [s for n in stacks for s in n if 'gobrrr' in s])")
piece(EXTRA, "autograd profiler", setup="counts = []", around="""
(old := torch.autograd.profiler.profile(use_kineto=True) if k % 20 == 19 else contextlib.nullcontext())
""", after="""
if k % 20 == 19:
    counts.append(sorted((e.key, e.count) for e in old.key_averages()))
""", end="say(len(counts), digest(counts), counts[:1])")
piece(EXTRA, "legacy profiler", setup="""
import torch.autograd.profiler_legacy as legacy

legacies = []
""", around="(old := legacy.profile() if k % 3 == 0 else contextlib.nullcontext())", after="""
if k % 3 == 0:
    legacies.append(len(old.function_events))
""", end="say(len(legacies), digest(legacies))")
piece(EXTRA, "record_function", around="torch.profiler.record_function('mine')")
piece(EXTRA, "execution trace observer", weight=0.5, setup="""
from torch.profiler import ExecutionTraceObserver

observer = ExecutionTraceObserver().register_callback(os.path.abspath("observed.json"))
observer.start()
""", end="""
observer.stop()
observer.unregister_callback()
import json
nodes = json.load(open("observed.json"))["nodes"]
say(len(nodes), digest([n["name"] for n in nodes]))
os.remove("observed.json")
""")

# odd tensors

piece(EXTRA, "sparse, meta, quantized", after="""
if k % 30 == 5:
    odd = [torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.ones(2, device="meta"),
           torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), torch.ones(2, dtype=torch.float8_e4m3fn)]
    say([(str(t.layout), str(t.dtype), t.device.type) for t in odd], odd[3].int_repr().tolist())
""")
piece(EXTRA, "sparse gradients", setup="words = nn.Embedding(50, 4, sparse=True)\nsparse = torch.optim.SparseAdam("
    "list(words.parameters()), lr=0.01)", after="""
sparse.zero_grad()
words(torch.randint(0, 50, (6,))).square().sum().backward()
sparse.step()
""", end="say(digest(words.weight), digest(sparse.state_dict()['state']))")
piece(EXTRA, "nested and masked", after="""
if k % 40 == 8:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], requires_grad=True)
    say(digest(torch.nested.to_padded_tensor(ragged, 0.0)))
""")
piece(EXTRA, "denormals", after="""
if k % 40 == 9:
    say((torch.full((3,), 1e-39) * 0.5).tolist(), torch.set_flush_denormal(k % 80 == 9))
""")
piece(EXTRA, "storages shared", setup="base = torch.zeros(64)\nbase.share_memory_()", after="""
base[k % 64] += 1
view = base.view(8, 8).t()
losses.append((view.is_shared(), view.untyped_storage().nbytes(), view._base is base))
""", end="say(digest(base))")
piece(EXTRA, "numpy views", setup="array = np.zeros(16, dtype=np.float32)\nseen_by = torch.from_numpy(array)", after="""
array += np.float32(loss.item())
losses.append(seen_by.sum().item().hex())
""")
piece(EXTRA, "module called in a module's hook", setup="""
inner, in_hook = nn.Linear(4, 2), []
model.register_forward_hook(lambda m, args, out: in_hook.append(inner(out.detach()).sum().item().hex()))
""", end="say(len(in_hook), digest(in_hook))")
piece(EXTRA, "global module hooks", setup="""
from torch.nn.modules import module as modules

walked = []
g1 = modules.register_module_forward_pre_hook(lambda m, args: walked.append(type(m).__name__))
g2 = modules.register_module_full_backward_hook(lambda m, gi, go: walked.append(len(go)))
""", end="g1.remove(); g2.remove(); say(len(walked), digest(walked))")

# copies, schedules, averages

piece(EXTRA, "pickled and copied", setup="import copy, io, pickle\npickles = []", after="""
if k % 30 == 12:
    try:
        twin = copy.deepcopy(model)
        pickles.append(digest(twin.state_dict()))
        pickles.append(digest(pickle.loads(pickle.dumps(model)).state_dict()))
    except Exception as error:
        pickles.append(type(error).__name__)
    pickles.append(len(pickle.dumps(optimizer.state_dict())))
""", end="say(pickles[-3:], digest(pickles))")
piece(EXTRA, "optimizer and loader copied", setup="import copy, pickle\ncopies = []", after="""
if k % 30 == 13:
    for thing in (optimizer, globals().get("loader")):
        try:
            copies.append((type(copy.deepcopy(thing)).__name__, len(pickle.dumps(thing))))
        except Exception as error:
            copies.append((type(error).__name__, str(error)[:80]))
""", end="say(copies[-2:], digest(copies))")
piece(EXTRA, "checkpoint written", after="""
if k % 50 == 40:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"step{k}.pt")
""")
piece(EXTRA, "checkpoint read back", after="""
if k == 60:
    torch.save(model.state_dict(), "state.pt")
if k == 130:
    say(model.load_state_dict(torch.load("state.pt")))
""")
piece(EXTRA, "learning rates", setup="""
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [
    torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20),
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)], milestones=[20])
""", after="scheduler.step()", end="say([lr.hex() for lr in scheduler.get_last_lr()])")
piece(EXTRA, "one cycle", setup="""
cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=2 * STEPS, cycle_momentum=False)
""", after="cycle.step()", end="say(cycle.get_last_lr())")
piece(EXTRA, "averaged weights", setup="""
averaged = torch.optim.swa_utils.AveragedModel(
    nn.Linear(16, 4), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
averaging = nn.Linear(16, 4)
""", after="averaging.weight.data.add_(loss.item()); averaged.update_parameters(averaging)",
    end="say(digest(averaged.state_dict()))")
piece(EXTRA, "ema by hand", setup="ema = {n: p.detach().clone() for n, p in model.named_parameters()}", after="""
with torch.no_grad():
    for name, p in model.named_parameters():
        ema[name].lerp_(p, 0.1)
""", end="say(digest(ema))")
piece(EXTRA, "torch random forked", around="torch.random.fork_rng()")
piece(EXTRA, "threads of torch set", after="""
if k == 90:
    torch.set_num_threads(2)
    say(torch.get_num_threads(), torch.get_num_interop_threads())
""")
piece(EXTRA, "memory looked at", after="""
if k % 90 == 45:
    alive = [t for t in gc.get_objects() if isinstance(t, torch.Tensor)]
    say(sum(type(t) is nn.Parameter for t in alive))
""")
