"""Extras that use autograd, torch.func, compilation, and modes."""

from tests.fuzz.grammar import EXTRA, piece

# autograd

piece(
    EXTRA,
    "in-place on a saved tensor",
    setup="wrong, side = [], torch.randn(16, 16, requires_grad=True)",
    after="""
h = torch.sigmoid(x @ side)
z = h.square().sum()
h.detach().zero_()
side.grad = None
try:
    z.backward()
    wrong.append(side.grad.sum().item().hex())
except RuntimeError as error:
    wrong.append(type(error).__name__)
""",
    end="say(digest(wrong), sorted(set(wrong))[:3])",
)
piece(
    EXTRA,
    "backward twice",
    setup="twice = []",
    after="""
if k % 7 == 0:
    z = (model(x) * 1.0).exp().sum()
    try:
        z.backward()
        z.backward()
    except RuntimeError as error:
        twice.append(str(error))
    model.zero_grad()
""",
    end="say(len(twice), sorted(set(twice)))",
)
piece(
    EXTRA,
    "saved_tensors_hooks",
    setup="packed = []",
    around="""
torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t.shape), t.clone())[1], lambda t: t)
""",
    end="say(len(packed), digest(packed))",
)
piece(
    EXTRA,
    "save_on_cpu sometimes",
    around="""
(torch.autograd.graph.save_on_cpu() if k % 5 == 0 else contextlib.nullcontext())
""",
)
piece(
    EXTRA,
    "saved tensors looked at",
    setup="looked = []",
    after="""
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
""",
    end="say(digest(looked), looked[-3:])",
)
piece(EXTRA, "anomaly mode", around="torch.autograd.set_detect_anomaly(k % 3 == 0)")
piece(
    EXTRA,
    "anomaly found",
    setup="found = []",
    after="""
if k % 20 == 10:
    with torch.autograd.detect_anomaly():
        try:
            w = torch.zeros(4, requires_grad=True)
            (w.sqrt() * 0).sum().backward()
        except RuntimeError as error:
            found.append(str(error))
""",
    end="say(len(found), sorted(set(found)))",
)
piece(EXTRA, "deterministic algorithms", setup="torch.use_deterministic_algorithms(True)")
piece(
    EXTRA,
    "graph walked",
    setup="nodes = []",
    after="""
out, todo, seen_nodes = model(x), [], set()
todo.append(out.grad_fn)
while todo:
    node = todo.pop()
    if node is not None and node not in seen_nodes:
        seen_nodes.add(node)
        nodes.append((node.name(), len(node.metadata)))
        todo += [child for child, _ in node.next_functions]
""",
    end="say(len(nodes), digest(nodes), nodes[-2:])",
)
piece(
    EXTRA,
    "multi-grad hook",
    setup="multi = []",
    before="""
ps = [p for p in model.parameters() if p.requires_grad]
handle = torch.autograd.graph.register_multi_grad_hook(ps, lambda gs: multi.append(sum(g is not None for g in gs)))
""",
    after="handle.remove()",
    end="say(len(multi), multi[-1:])",
)
piece(
    EXTRA,
    "versions printed",
    after="""
if k % 60 == 30:
    say([t._version for t in (*model.parameters(), *model.buffers())], x._version)
""",
)
piece(EXTRA, "graphs held", setup="held = []", after="held.append(loss); del held[:-50]")
piece(
    EXTRA,
    "gradients frozen and thawed",
    after="""
if k in (50, 100):
    next(iter(model.parameters())).requires_grad_(k == 100)
""",
)

# torch.func and compile

piece(
    EXTRA,
    "jacobian",
    after="""
if k % 10 == 0:
    say("jacobian", digest(torch.func.jacrev(torch.tanh)(x[0]).sum().item()), torch.func.hessian(
        lambda v: (v ** 3).sum())(x[0, :3]).sum().item().hex())
""",
)
piece(
    EXTRA,
    "vmap in each step",
    setup="mapped = []",
    after="""
mapped.append(torch.vmap(lambda row: torch.func.grad(lambda v: (v * v).sum())(row))(x.detach() * 1.0).sum().item())
""",
    end="say(digest(mapped))",
)
piece(
    EXTRA,
    "linearize and jvp",
    after="""
if k % 11 == 0:
    out, tangent = torch.func.jvp(torch.sin, (x.detach() * 1.0,), (torch.ones_like(x),))
    say("jvp", digest([out, tangent]))
""",
)
piece(
    EXTRA,
    "compiled function",
    weight=0.5,
    setup="""
@torch.compile(backend="eager")
def smooth(v, weight):
    return torch.tanh(v) * weight + v.mean()
""",
    after="losses.append(smooth(loss.detach(), k % 2 + 1.0).item().hex())",
)
piece(
    EXTRA,
    "make_fx",
    setup="from torch.fx.experimental.proxy_tensor import make_fx",
    after="""
if k % 70 == 35:
    say(make_fx(lambda v: torch.tanh(v) @ v.T)(torch.ones(2, 3)).code)
""",
)
piece(
    EXTRA,
    "jit traced meanwhile",
    after="""
if k % 50 == 25:
    traced = torch.jit.trace(nn.Sequential(nn.Linear(16, 4), nn.ReLU()), torch.ones(1, 16))
    say(traced.code, digest(traced(torch.ones(1, 16))))
""",
)
piece(
    EXTRA,
    "fx traced meanwhile",
    setup="import torch.fx",
    after="""
if k % 50 == 20:
    say(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(16, 4), nn.ReLU())).graph)
""",
)
piece(
    EXTRA,
    "export",
    weight=0.3,
    after="""
if k == 120:
    program = torch.export.export(nn.Linear(16, 4), (torch.ones(2, 16),))
    say([node.name for node in program.graph.nodes])
""",
)

# modes

piece(
    EXTRA,
    "dispatch mode",
    setup="""
from torch.utils._python_dispatch import TorchDispatchMode

ops = []


class Listing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        ops.append(str(function))
        return function(*args, **(kwargs or {}))
""",
    around="Listing()",
    end="say(len(ops), digest(ops))",
)
piece(
    EXTRA,
    "dispatch mode around all",
    start="ops_of_all = []",
    setup="""
from torch.utils._python_dispatch import TorchDispatchMode


class Around(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        ops_of_all.append(str(function))
        return function(*args, **(kwargs or {}))


around_all = Around()
around_all.__enter__()
""",
    end="around_all.__exit__(None, None, None); say(len(ops_of_all), digest(ops_of_all))",
)
piece(
    EXTRA,
    "function mode",
    setup="""
from torch.overrides import TorchFunctionMode

functions = []


class Named_(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        functions.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))


mode = Named_()
mode.__enter__()
""",
    end="mode.__exit__(None, None, None); say(len(functions), digest(functions))",
)
piece(
    EXTRA,
    "flop counter",
    weight=0.5,
    setup="""
from torch.utils.flop_counter import FlopCounterMode

counter = FlopCounterMode(display=False)
""",
    around="(counter if k % 4 == 0 else contextlib.nullcontext())",
    end="say(counter.get_total_flops())",
)
piece(EXTRA, "default device", around="torch.device('cpu')")
piece(
    EXTRA,
    "grad mode switched",
    after="""
torch.set_grad_enabled(False)
losses.append(model(x).sum().item().hex())
torch.set_grad_enabled(True)
say(torch.is_grad_enabled()) if k % 100 == 0 else None
""",
)
