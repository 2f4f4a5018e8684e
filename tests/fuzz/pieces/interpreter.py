"""Extras that look at or change the interpreter: stacks, tracers, warnings, streams, garbage."""

from tests.fuzz.grammar import EXTRA, piece

# stacks, types and names

piece(
    EXTRA,
    "stack printed",
    start="import inspect, traceback",
    setup="""
depths = []
model.register_forward_hook(lambda m, args, out: depths.append([f.function for f in inspect.stack()]))
""",
    after="""
if k % 60 == 7:
    say(len(inspect.stack(0)), [f"{f.name}:{f.lineno}" for f in traceback.extract_stack()])
""",
    end="say(len(depths), digest(depths))",
)
piece(
    EXTRA,
    "tracebacks printed",
    start="import traceback",
    setup="""
class Odd(nn.Module):
    def forward(self, x):
        raise RuntimeError("odd")


odd = Odd()
""",
    after="""
if k % 30 == 3:
    try:
        odd(x)
    except RuntimeError:
        traceback.print_exc()
""",
)
piece(
    EXTRA,
    "types of bound methods",
    start="import inspect",
    after="""
if k % 60 == 17:
    say(type(model.__call__), model.__call__.__func__ is type(model).__call__, type(nn.Module.__call__),
        nn.Module.__call__.__qualname__, nn.Module.__call__ is nn.Module._wrapped_call_impl,
        inspect.signature(nn.Module.__call__), inspect.signature(DataLoader.__iter__),
        inspect.isfunction(nn.Module.__call__), nn.Module.__call__.__module__, callable(model))
""",
)
piece(
    EXTRA,
    "call patched by the program",
    setup="""
own_call, forwarded = nn.Module.__call__, []


def counted_call(self, *args, **kwargs):
    forwarded.append(type(self).__name__)
    return own_call(self, *args, **kwargs)
""",
    after="""
if k == 30:
    nn.Module.__call__ = counted_call
if k == 200:
    nn.Module.__call__ = own_call
""",
    end="nn.Module.__call__ = own_call; say(len(forwarded), digest(forwarded))",
)
piece(
    EXTRA,
    "deep recursion",
    setup="""
def deep(n, x):
    return model(x) if n == 0 else deep(n - 1, x)
""",
    after="""
if k % 30 == 21:
    low = 0
    try:
        deep(5000, x)
    except RecursionError as error:
        say(str(error)[:60])
    losses.append(deep(300, x).sum().item().hex())
""",
)
piece(
    EXTRA,
    "locals kept",
    setup="""
kept = []


def holder(x):
    mine = locals()
    out = model(x)
    kept.append((sorted(mine), sorted(locals())))
    return out
""",
    after="holder(x)",
    end="say(len(kept), digest(kept), kept[-1])",
)
piece(
    EXTRA,
    "surroundings",
    after="""
if k % 100 == 33:
    from seen import process, torch_flags
    say({n: v for n, v in process().items() if n not in ("files", "modules")}, torch_flags())
""",
    end="from seen import process, seams; say({n: v for n, v in process().items() if n != 'modules'})",
)
piece(
    EXTRA,
    "environment printed",
    start="import os; print(sorted(os.environ.items()))",
    end="""
say(sorted(os.environ.items()), sys.argv, sys.path, sys.orig_argv, sys.flags, sys.gettrace())
""",
)
piece(
    EXTRA,
    "modules listed",
    start="""
import sys
print(sorted(name for name in sys.modules if name.split(".")[0] != "gobrrr"))
""",
)

# tracers

piece(
    EXTRA,
    "sys.settrace",
    setup="""
traced = []


def traced_function():
    value = 1
    return value


def tracer(frame, event, arg):
    if frame.f_code.co_name != "traced_function":
        return None
    traced.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
    return tracer
""",
    after="""
if k % 40 == 11:
    sys.settrace(tracer)
traced_function()
if k % 40 == 31:
    sys.settrace(None)
""",
    end="sys.settrace(None); say(len(traced), digest(traced))",
)
piece(
    EXTRA,
    "cProfile",
    start="import cProfile, pstats",
    setup="profiler_of_calls = cProfile.Profile()",
    after="""
if k % 50 == 10:
    profiler_of_calls.enable()
if k % 50 == 14:
    profiler_of_calls.disable()
""",
    end="""
profiler_of_calls.disable()
stats = pstats.Stats(profiler_of_calls).stats.items()  # two comprehensions of one file have one name
say([(*row, *v[:2]) for row, v in sorted(((os.path.basename(f), n), v[:2]) for (f, _, n), v in stats)
     if row[0] in ("program.py", "module.py", "optimizer.py")])
""",
)
piece(
    EXTRA,
    "sys.setprofile",
    setup="""
profiled = []
def profile_call(frame, event, arg):
    names, ours = ("forward", "step", "backward", "_call_impl"), "gobrrr" in frame.f_code.co_filename
    if event == "call" and frame.f_code.co_name in names and not ours:  # ours are seen by nature
        profiled.append(event)
""",
    after="""
if k % 50 == 10:
    sys.setprofile(profile_call)
if k % 50 == 12:
    sys.setprofile(None)
""",
    end="sys.setprofile(None); say(len(profiled), digest(profiled), sorted(set(profiled)))",
)
piece(
    EXTRA,
    "tracemalloc",
    weight=0.5,
    start="import tracemalloc",
    after="""
if k == 50:
    tracemalloc.start()
if k == 80:
    found = tracemalloc.take_snapshot().statistics("filename")
    tracemalloc.stop()
    say([s.traceback[0].filename for s in found if s.traceback[0].filename == os.path.abspath("program.py")])
""",
)
piece(
    EXTRA,
    "faulthandler",
    start="import faulthandler; faulthandler.enable()",
    after="""
if k == 70:
    faulthandler.dump_traceback(all_threads=False)
""",
)
piece(
    EXTRA,
    "sys.monitoring or audit",
    setup="""
audited = []
sys.addaudithook(lambda name, args: audited.append(name) if name in ("os.fork", "os.system", "subprocess.Popen") else 0)
""",
    end="say(audited)",
)

# warnings and streams

piece(
    EXTRA,
    "warnings",
    setup="warnings.simplefilter('always')",
    after="""
if k % 50 == 15:
    warnings.warn(f"mine at {k}")
    F.cross_entropy(x.sum(1)[:4], torch.ones(4) / 4, size_average=True)
    torch.range(0, 2)
""",
)
piece(EXTRA, "warnings are errors", setup="warnings.simplefilter('error')")
piece(
    EXTRA,
    "warnings once",
    setup="warnings.simplefilter('default')",
    after="""
warnings.warn("the same each time", UserWarning)
torch.range(0, 1)
""",
)
piece(
    EXTRA,
    "stdout redirected",
    start="import io",
    setup="text = io.StringIO()",
    around="contextlib.redirect_stdout(text)",
    after="text.write(f'{k}'); print('shown', k, file=text)",
    end="say(len(text.getvalue()), digest(text.getvalue()))",
)
piece(
    EXTRA,
    "descriptor 1 to a file",
    setup="""
sys.stdout.flush()
kept_stdout = os.dup(1)
target = os.open("stdout.txt", os.O_WRONLY | os.O_CREAT)
os.dup2(target, 1)
""",
    end="sys.stdout.flush(); os.dup2(kept_stdout, 1)",
)
piece(
    EXTRA,
    "descriptor 2 to a file",
    after="""
if k == 20:
    target = os.open("stderr.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(target, 2)
if k % 40 == 39:
    os.write(2, b"a line\\n")
    print("another", file=sys.stderr)
""",
)
piece(
    EXTRA,
    "stderr closed",
    after="""
if k == 25:
    sys.stderr.close()
    os.close(2)
""",
)
piece(
    EXTRA,
    "stdin read",
    after="""
if k % 50 == 1:
    say(repr(sys.stdin.readline()))
""",
)
piece(
    EXTRA,
    "logging",
    start="import logging; logging.basicConfig(level=logging.DEBUG)",
    after="""
if k % 50 == 2:
    logging.getLogger("mine").debug("at %d", k)
""",
)

# garbage

piece(
    EXTRA,
    "finalizers that call modules",
    start="import weakref",
    setup="""
class Fading:
    def __init__(self, k):
        self.loop, self.k = self, k

    def __del__(self):
        faded.append(float(still_there(torch.full((1, 16), float(self.k))).sum()).hex())


faded, still_there = [], nn.Linear(16, 2)
gc.disable()  # when it runs by itself is seen by nature: it counts our allocations too
""",
    after="""
Fading(k)
if k % 10 == 9:
    gc.collect()
    losses.append(len(faded))
""",
    end="gc.collect(); say(len(faded), digest(sorted(faded)))",
)
piece(
    EXTRA,
    "gc frozen",
    after="""
if k == 30:
    gc.collect()
    gc.freeze()
    gc.disable()
if k == 120:
    gc.unfreeze()
    gc.enable()
say(gc.isenabled(), gc.get_threshold()) if k % 100 == 0 else None
""",
)
piece(
    EXTRA,
    "gc callbacks",
    setup="""
collections = []
def collected(phase, info):
    if info["generation"] == 2:
        collections.append(phase)


gc.callbacks.append(collected)
gc.disable()
""",
    after="""
if k % 20 == 19:
    gc.collect()
""",
    end="say(len(collections), digest(collections))",
)
piece(
    EXTRA,
    "weak references",
    start="import weakref",
    setup="gone = []; gc.disable()",  # as above
    after="""
weakref.finalize(loss.detach() if k % 2 else x, gone.append, k)
graph = weakref.ref(loss)
kept_alive = [len(gone), sys.getrefcount(loss) - sys.getrefcount(loss)]
losses.append(kept_alive)
""",
    end="say(len(gone), digest(gone))",
)
piece(
    EXTRA,
    "reference counts",
    after="""
if k % 60 == 19:
    say(sys.getrefcount(model), sys.getrefcount(optimizer), sys.getrefcount(losses), sys.getrefcount(x))
""",
)
