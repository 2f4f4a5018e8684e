"""Extras that use the interpreter and the process: stacks, tracers, threads, signals, forks, descriptors, streams."""

from tests.fuzz.grammar import EXTRA, piece

# stacks, types and names

piece(EXTRA, "stack printed", start="import inspect, traceback", setup="""
depths = []
model.register_forward_hook(lambda m, args, out: depths.append([f.function for f in inspect.stack()]))
""", after="""
if k % 60 == 7:
    say(len(inspect.stack(0)), [f"{f.name}:{f.lineno}" for f in traceback.extract_stack()])
""", end="say(len(depths), digest(depths))")
piece(EXTRA, "tracebacks printed", start="import traceback", setup="""
class Odd(nn.Module):
    def forward(self, x):
        raise RuntimeError("odd")


odd = Odd()
""", after="""
if k % 30 == 3:
    try:
        odd(x)
    except RuntimeError:
        traceback.print_exc()
""")
piece(EXTRA, "types of bound methods", start="import inspect", after="""
if k % 60 == 17:
    say(type(model.__call__), model.__call__.__func__ is type(model).__call__, type(nn.Module.__call__),
        nn.Module.__call__.__qualname__, nn.Module.__call__ is nn.Module._wrapped_call_impl,
        inspect.signature(nn.Module.__call__), inspect.signature(DataLoader.__iter__),
        inspect.isfunction(nn.Module.__call__), nn.Module.__call__.__module__, callable(model))
""")
piece(EXTRA, "call patched by the program", setup="""
own_call, forwarded = nn.Module.__call__, []


def counted_call(self, *args, **kwargs):
    forwarded.append(type(self).__name__)
    return own_call(self, *args, **kwargs)
""", after="""
if k == 30:
    nn.Module.__call__ = counted_call
if k == 200:
    nn.Module.__call__ = own_call
""", end="nn.Module.__call__ = own_call; say(len(forwarded), digest(forwarded))")
piece(EXTRA, "deep recursion", setup="""
def deep(n, x):
    return model(x) if n == 0 else deep(n - 1, x)
""", after="""
if k % 30 == 21:
    low = 0
    try:
        deep(5000, x)
    except RecursionError as error:
        say(str(error)[:60])
    losses.append(deep(300, x).sum().item().hex())
""")
piece(EXTRA, "locals kept", setup="""
kept = []


def holder(x):
    mine = locals()
    out = model(x)
    kept.append((sorted(mine), sorted(locals())))
    return out
""", after="holder(x)", end="say(len(kept), digest(kept), kept[-1])")
piece(EXTRA, "surroundings", after="""
if k % 100 == 33:
    from seen import process, torch_flags
    say({n: v for n, v in process().items() if n not in ("files", "modules", "switch_interval")}, torch_flags())
""", end="from seen import process, seams; say({n: v for n, v in process().items() if n != 'modules'})")
piece(EXTRA, "environment printed", start="import os; print(sorted(os.environ.items()))", end="""
say(sorted(os.environ.items()), sys.argv, sys.path, sys.orig_argv, sys.flags, sys.gettrace())
""")
piece(EXTRA, "modules listed", start="""
import sys
print(sorted(name for name in sys.modules if name.split(".")[0] != "gobrrr"))
""")

# tracers

piece(EXTRA, "sys.settrace", setup="""
traced = []


def traced_function():
    value = 1
    return value


def tracer(frame, event, arg):
    if frame.f_code.co_name != "traced_function":
        return None
    traced.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
    return tracer
""", after="""
if k % 40 == 11:
    sys.settrace(tracer)
traced_function()
if k % 40 == 31:
    sys.settrace(None)
""", end="sys.settrace(None); say(len(traced), digest(traced))")
piece(EXTRA, "cProfile", start="import cProfile, pstats", setup="profiler_of_calls = cProfile.Profile()", after="""
if k % 50 == 10:
    profiler_of_calls.enable()
if k % 50 == 14:
    profiler_of_calls.disable()
""", end="""
profiler_of_calls.disable()
rows = {(os.path.basename(f), n): v[:2] for (f, _, n), v in pstats.Stats(profiler_of_calls).stats.items()}
say([row for row in sorted(rows.items()) if row[0][0] in ("program.py", "module.py", "optimizer.py")],
    [f for f in pstats.Stats(profiler_of_calls).stats if "gobrrr" in f[0]])
""")
piece(EXTRA, "sys.setprofile", setup="""
profiled = []
def profile_call(frame, event, arg):
    if "gobrrr" in frame.f_code.co_filename:
        profiled.append(frame.f_code.co_name)
    if event == "call" and frame.f_code.co_name in ("forward", "step", "backward", "_call_impl"):
        profiled.append(event)
""", after="""
if k % 50 == 10:
    sys.setprofile(profile_call)
if k % 50 == 12:
    sys.setprofile(None)
""", end="sys.setprofile(None); say(len(profiled), digest(profiled), sorted(set(profiled)))")
piece(EXTRA, "tracemalloc", weight=0.5, start="import tracemalloc", after="""
if k == 50:
    tracemalloc.start()
if k == 80:
    found = tracemalloc.take_snapshot().statistics("filename")
    tracemalloc.stop()
    say(sorted(s.traceback[0].filename for s in found if "gobrrr" in s.traceback[0].filename))
""")
piece(EXTRA, "faulthandler", start="import faulthandler; faulthandler.enable()", after="""
if k == 70:
    faulthandler.dump_traceback(all_threads=False)
""")
piece(EXTRA, "sys.monitoring or audit", setup="""
audited = []
sys.addaudithook(lambda name, args: audited.append(name) if name in ("os.fork", "os.system", "subprocess.Popen") else 0)
""", end="say(audited)")

# warnings and streams

piece(EXTRA, "warnings", setup="warnings.simplefilter('always')", after="""
if k % 50 == 15:
    warnings.warn(f"mine at {k}")
    F.cross_entropy(x.sum(1)[:4], torch.ones(4) / 4, size_average=True)
    torch.range(0, 2)
""")
piece(EXTRA, "warnings are errors", setup="warnings.simplefilter('error')")
piece(EXTRA, "warnings once", setup="warnings.simplefilter('default')", after="""
warnings.warn("the same each time", UserWarning)
torch.range(0, 1)
""")
piece(EXTRA, "stdout redirected", start="import io", setup="text = io.StringIO()", around="contextlib.redirect_stdout(text)",
    after="text.write(f'{k}'); print('shown', k, file=text)", end="say(len(text.getvalue()), digest(text.getvalue()))")
piece(EXTRA, "descriptor 1 to a file", setup="""
sys.stdout.flush()
kept_stdout = os.dup(1)
target = os.open("stdout.txt", os.O_WRONLY | os.O_CREAT)
os.dup2(target, 1)
""", end="sys.stdout.flush(); os.dup2(kept_stdout, 1)")
piece(EXTRA, "descriptor 2 to a file", after="""
if k == 20:
    target = os.open("stderr.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(target, 2)
if k % 40 == 39:
    os.write(2, b"a line\\n")
    print("another", file=sys.stderr)
""")
piece(EXTRA, "stderr closed", after="""
if k == 25:
    sys.stderr.close()
    os.close(2)
""")
piece(EXTRA, "stdin read", after="""
if k % 50 == 1:
    say(repr(sys.stdin.readline()))
""")
piece(EXTRA, "logging", start="import logging; logging.basicConfig(level=logging.DEBUG)", after="""
if k % 50 == 2:
    logging.getLogger("mine").debug("at %d", k)
""")

# descriptors, files and folders

piece(EXTRA, "descriptors closed", after="""
if k == 20:
    os.closerange(3, 64)
    own = [open(f"own{i}.txt", "wb", buffering=0) for i in range(5)]
    files_of_mine[:] = own
if k > 20 and files_of_mine:
    files_of_mine[k % 5].write(b"mine\\n")
""", setup="files_of_mine = []")
piece(EXTRA, "lowest descriptor printed", after="""
if k % 60 == 18:
    with open("numbered.txt", "w") as file:
        say("descriptor", file.fileno())
""", weight=0.5)
piece(EXTRA, "chdir", after="""
if k % 100 == 22:
    os.makedirs(f"below{k}", exist_ok=True)
    os.chdir(f"below{k}")
    say(os.listdir(".."))
""")
piece(EXTRA, "open files limited", start="import resource", after="""
if k == 24:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
""")
piece(EXTRA, "umask and nice", after="""
if k == 26:
    os.umask(0o077)
    os.nice(1)
    open("private.txt", "w").close()
    say(oct(os.stat("private.txt").st_mode))
""")
piece(EXTRA, "address space limited", weight=0.5, start="import resource", after="""
if k == 28:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open("large.bin", "wb") as file:
            file.write(bytes(1 << 17))
    except OSError as error:
        say(error.errno, os.path.getsize("large.bin"))
""")

# threads

piece(EXTRA, "a second thread trains", setup="""
other_losses, other = [], nn.Linear(4, 4)
other_optimizer = torch.optim.SGD(other.parameters(), 0.01)


def train_other():
    for i in range(120):
        found = other(torch.full((2, 4), float(i % 3))).square().mean()
        other_optimizer.zero_grad()
        found.backward()
        other_optimizer.step()
        other_losses.append(found.item().hex())


beside = threading.Thread(target=train_other)
beside.start()
""", end="beside.join(); say(digest(other_losses), digest(other.state_dict()))")
piece(EXTRA, "a pool infers", start="from concurrent.futures import ThreadPoolExecutor", setup="""
still = nn.Sequential(nn.Linear(16, 4), nn.Tanh())
pool = ThreadPoolExecutor(3)
""", after="""
losses.append(list(pool.map(lambda row: still(row).sum().item().hex(), x.detach().as_subclass(torch.Tensor)[:4])))
""", end="pool.shutdown()")
piece(EXTRA, "modules called from C", start="import _thread, atexit, functools, weakref", setup="""
class Quiet(nn.Module):
    def forward(self, *args):
        heard.append(len(args))
        return None


class Mortal:
    pass


heard, quiet = [], Quiet()
atexit.register(quiet, 1, 2)
atexit.register(lambda: print("heard", heard))
""", after="""
if k % 20 == 0:
    mortal = Mortal()
    reference = weakref.ref(mortal, quiet)
    del mortal
    done = _thread.allocate_lock()
    heard.extend(map(quiet, [1, 2]) and [])
    _thread.start_new_thread(quiet, (x,))
    deadline = time.monotonic() + 5
    wanted = 2 * (k // 20 + 1)
    while len(heard) < wanted and time.monotonic() < deadline:
        time.sleep(0.0005)
sorted([3, 1, 2], key=functools.partial(lambda m, v: v, quiet))
""", end="say(len(heard), sorted(set(heard)))")
piece(EXTRA, "thread locals and excepthook", setup="""
caught = []
threading.excepthook = lambda args: caught.append(args.exc_type.__name__)
""", after="""
if k % 50 == 6:
    broken = threading.Thread(target=lambda: 1 / 0)
    broken.start()
    broken.join()
""", end="say(caught)")
piece(EXTRA, "generators left open", setup="""
def endless():
    try:
        while True:
            yield model(torch.ones(8, 16)).sum().item().hex()
    finally:
        closed.append(1)


closed, open_ones = [], []
""", after="""
if k % 20 == 4:
    open_ones.append(endless())
    losses.append(next(open_ones[-1]))
    del open_ones[:-2]
""", end="say(len(closed))")

# garbage

piece(EXTRA, "finalizers that call modules", start="import weakref", setup="""
class Fading:
    def __init__(self, k):
        self.loop, self.k = self, k

    def __del__(self):
        faded.append(float(still_there(torch.full((1, 16), float(self.k))).sum()).hex())


faded, still_there = [], nn.Linear(16, 2)
""", after="""
Fading(k)
if k % 10 == 9:
    gc.collect()
    losses.append(len(faded))
""", end="gc.collect(); say(len(faded), digest(sorted(faded)))")
piece(EXTRA, "gc frozen", after="""
if k == 30:
    gc.collect()
    gc.freeze()
    gc.disable()
if k == 120:
    gc.unfreeze()
    gc.enable()
say(gc.isenabled(), gc.get_threshold()) if k % 100 == 0 else None
""")
piece(EXTRA, "gc callbacks", setup="""
collections = []
gc.callbacks.append(lambda phase, info: collections.append((phase, info["generation"])) if info["generation"] == 2 else 0)
gc.disable()
""", after="""
if k % 20 == 19:
    gc.collect()
""", end="say(len(collections), digest(collections))")
piece(EXTRA, "weak references", start="import weakref", setup="gone = []", after="""
weakref.finalize(loss.detach() if k % 2 else x, gone.append, k)
graph = weakref.ref(loss)
kept_alive = [len(gone), sys.getrefcount(loss) - sys.getrefcount(loss)]
losses.append(kept_alive)
""", end="say(len(gone), digest(gone))")
piece(EXTRA, "reference counts", after="""
if k % 60 == 19:
    say(sys.getrefcount(model), sys.getrefcount(optimizer), sys.getrefcount(losses), sys.getrefcount(x))
""")

# signals

piece(EXTRA, "alarms", setup="""
rings = []
signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
""", end="signal.setitimer(signal.ITIMER_REAL, 0); say(len(rings) > 1)")
piece(EXTRA, "an alarm raises", setup="""
class Late(Exception):
    pass


def late(number, frame):
    raise Late


signal.signal(signal.SIGALRM, late)
rung = []
""", after="""
if k % 15 == 8:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        while True:
            model(torch.ones(8, 16))
    except Late:
        rung.append(k)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
""", end="say(rung)", weight=0.5)
piece(EXTRA, "a signal raised in each step", setup="""
signals = []
signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(frame.f_lineno))
""", after="signal.raise_signal(signal.SIGUSR1)", end="say(len(signals), sorted(set(signals)))")
piece(EXTRA, "interrupts survived", setup="interrupted = []", after="""
if k % 40 == 16:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        interrupted.append(k)
""", end="say(interrupted)")
piece(EXTRA, "sigchld and wait", setup="""
children = []
signal.signal(signal.SIGCHLD, lambda number, frame: children.append(number))
""", after="""
if k % 70 == 20:
    pid = os.fork()
    if pid == 0:
        os._exit(k % 7)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""", end="say(len(children))")
piece(EXTRA, "signal mask", setup="signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})", end="""
say(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), signal.sigpending(), signal.getsignal(signal.SIGINT))
""")

# exit

piece(EXTRA, "atexit", start="import atexit; atexit.register(print, 'the first registered')", setup="""
atexit.register(lambda: print("leaving", len(losses), digest(model.state_dict()), flush=True))
""")
piece(EXTRA, "excepthook", setup="""
sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error, file=sys.stdout)
""")
piece(EXTRA, "unraisable", setup="""
class Bad:
    def __del__(self):
        raise ValueError("in a finalizer")
""", after="""
if k % 60 == 23:
    Bad()
""")
piece(EXTRA, "daemon thread left", setup="threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")

# forks and other processes

piece(EXTRA, "fork that trains", after="""
if k == 110:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            for _ in range(20):
                child_loss = model(torch.ones(8, 16)).square().mean()
                optimizer.zero_grad()
                if child_loss.requires_grad:
                    child_loss.backward()
                optimizer.step(lambda: child_loss)
            print("child", digest(model.state_dict()), threading.active_count(), sys.gettrace(), flush=True)
            code = 0
        finally:
            os._exit(code)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
piece(EXTRA, "fork that leaves", after="""
if k == 115:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sys.exit(5)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
piece(EXTRA, "forked pool", start="import multiprocessing", setup="""
def square(v):
    return v * v, len(os.environ)
""", after="""
if k == 105:
    with multiprocessing.get_context("fork").Pool(2) as pool_of_forks:
        say(pool_of_forks.map(square, range(5)))
""")
piece(EXTRA, "spawned process", weight=0.3, start="import multiprocessing", after="""
if k == 100:
    child = multiprocessing.get_context("spawn").Process(target=os.listdir, args=(".",))
    child.start()
    child.join()
    say(child.exitcode)
""")
piece(EXTRA, "subprocess", start="import subprocess", after="""
if k % 100 == 50:
    done = subprocess.run([sys.executable, "-c", "import os, sys; print(sorted(os.environ), sys.argv, sys.path)"],
                          capture_output=True, text=True)
    say(done.returncode, done.stdout, done.stderr)
if k == 55:
    os.system("echo from a shell; ls -1; echo $PYTHONPATH")
""")
piece(EXTRA, "subprocess that trains", weight=0.3, start="import subprocess", after="""
if k == 65:
    code = (
        "import torch; m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), 0.1)\\n"
        "for _ in range(90): o.zero_grad(); m(torch.ones(2, 4)).sum().backward(); o.step()\\n"
        "print(torch.isfinite(m.weight).all().item())"
    )
    say(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))
""")
piece(EXTRA, "descriptors inherited", start="import subprocess", after="""
if k == 75:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    subprocess.run(["sh", "-c", f"echo inherited >&{write}; ls /proc/self/fd | wc -l"], close_fds=False)
    os.close(write)
    say(os.read(read, 20))
""")
piece(EXTRA, "slow steps", after="""
if k % 20 == 19:
    time.sleep(0.002)
""")
