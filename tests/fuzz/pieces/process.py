"""Extras that use the process: descriptors, threads, signals, exits."""

from tests.fuzz.grammar import EXTRA, piece

# descriptors, files and folders

piece(
    EXTRA,
    "descriptors closed",
    after="""
if k == 20:
    os.closerange(3, 64)
    own = [open(f"own{i}.txt", "wb", buffering=0) for i in range(5)]
    files_of_mine[:] = own
if k > 20 and files_of_mine:
    files_of_mine[k % 5].write(b"mine\\n")
""",
    setup="files_of_mine = []",
)
piece(
    EXTRA,
    "lowest descriptor printed",
    after="""
if k % 60 == 18:
    with open("numbered.txt", "w") as file:
        say("descriptor", file.fileno())
""",
    weight=0.5,
)
piece(
    EXTRA,
    "chdir",
    after="""
if k % 100 == 22:
    os.makedirs(f"below{k}", exist_ok=True)
    os.chdir(f"below{k}")
    say(os.listdir(".."))
""",
)
piece(
    EXTRA,
    "open files limited",
    start="import resource",
    after="""
if k == 24:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
""",
)
piece(
    EXTRA,
    "umask and nice",
    after="""
if k == 26:
    os.umask(0o077)
    os.nice(1)
    open("private.txt", "w").close()
    say(oct(os.stat("private.txt").st_mode))
""",
)
piece(
    EXTRA,
    "address space limited",
    weight=0.5,
    start="import resource",
    after="""
if k == 28:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open("large.bin", "wb") as file:
            file.write(bytes(1 << 17))
    except OSError as error:
        say(error.errno, os.path.getsize("large.bin"))
""",
)

# threads

piece(
    EXTRA,
    "a second thread trains",
    setup="""
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
""",
    end="beside.join(); say(digest(other_losses), digest(other.state_dict()))",
)
piece(
    EXTRA,
    "a pool infers",
    start="from concurrent.futures import ThreadPoolExecutor",
    setup="""
still = nn.Sequential(nn.Linear(16, 4), nn.Tanh())
pool = ThreadPoolExecutor(3)
""",
    after="""
losses.append(list(pool.map(lambda row: still(row).sum().item().hex(), x.detach().as_subclass(torch.Tensor)[:4])))
""",
    end="pool.shutdown()",
)
piece(
    EXTRA,
    "modules called from C",
    start="import _thread, atexit, functools, weakref",
    setup="""
class Quiet(nn.Module):
    def forward(self, *args):
        heard.append(len(args))
        return None


class Mortal:
    pass


heard, quiet = [], Quiet()
atexit.register(quiet, 1, 2)
atexit.register(lambda: print("heard", heard))
""",
    after="""
if k % 20 == 0:
    mortal = Mortal()
    reference = weakref.ref(mortal, quiet)
    del mortal
    done = _thread.allocate_lock()
    heard.extend(map(quiet, [1, 2]) and [])
    _thread.start_new_thread(quiet, (x,))
    deadline = time.monotonic() + 0.5
    wanted = 2 * (k // 20 + 1)
    while len(heard) < wanted and time.monotonic() < deadline:
        time.sleep(0.0005)
sorted([3, 1, 2], key=functools.partial(lambda m, v: v, quiet))
""",
    end="say(len(heard), sorted(set(heard)))",
)
piece(
    EXTRA,
    "thread locals and excepthook",
    setup="""
caught = []
threading.excepthook = lambda args: caught.append(args.exc_type.__name__)
""",
    after="""
if k % 50 == 6:
    broken = threading.Thread(target=lambda: 1 / 0)
    broken.start()
    broken.join()
""",
    end="say(caught)",
)
piece(
    EXTRA,
    "generators left open",
    setup="""
def endless():
    try:
        while True:
            yield model(torch.ones(8, 16)).sum().item().hex()
    finally:
        closed.append(1)


closed, open_ones = [], []
""",
    after="""
if k % 20 == 4:
    open_ones.append(endless())
    losses.append(next(open_ones[-1]))
    del open_ones[:-2]
""",
    end="say(len(closed))",
)

# signals

piece(
    EXTRA,
    "alarms",
    setup="""
rings = []
signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
""",
    end="signal.setitimer(signal.ITIMER_REAL, 0); say(len(rings) > 1)",
)
piece(
    EXTRA,
    "an alarm raises",
    setup="""
class Late(Exception):
    pass


def late(number, frame):
    raise Late


signal.signal(signal.SIGALRM, late)
rung, ringing = [], nn.Linear(16, 4)
""",
    after="""
if k % 15 == 8:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        while True:
            ringing(torch.ones(8, 16))
    except Late:
        rung.append(k)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
""",
    end="say(rung)",
    weight=0.5,
)
piece(
    EXTRA,
    "a signal raised in each step",
    setup="""
signals = []
signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(frame.f_lineno))
""",
    after="signal.raise_signal(signal.SIGUSR1)",
    end="say(len(signals), sorted(set(signals)))",
)
piece(
    EXTRA,
    "interrupts survived",
    setup="interrupted = []",
    after="""
if k % 40 == 16:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        interrupted.append(k)
""",
    end="say(interrupted)",
)
piece(
    EXTRA,
    "sigchld and wait",
    setup="""
children = []
signal.signal(signal.SIGCHLD, lambda number, frame: children.append(number))
""",
    after="""
if k % 70 == 20:
    pid = os.fork()
    if pid == 0:
        os._exit(k % 7)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
    end="say(len(children))",
)
piece(
    EXTRA,
    "signal mask",
    setup="signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
    end="""
say(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), signal.sigpending(), signal.getsignal(signal.SIGINT))
""",
)

# exit

piece(
    EXTRA,
    "atexit",
    start="import atexit; atexit.register(print, 'the first registered')",
    setup="""
atexit.register(lambda: print("leaving", len(losses), digest(model.state_dict()), flush=True))
""",
)
piece(
    EXTRA,
    "excepthook",
    setup="""
sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error, file=sys.stdout)
""",
)
piece(
    EXTRA,
    "unraisable",
    setup="""
class Bad:
    def __del__(self):
        raise ValueError("in a finalizer")
""",
    after="""
if k % 60 == 23:
    Bad()
""",
)
piece(EXTRA, "daemon thread left", setup="threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
