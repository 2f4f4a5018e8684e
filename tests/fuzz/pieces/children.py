"""Extras that fork, spawn and start other programs."""

from tests.fuzz.grammar import EXTRA, piece

piece(
    EXTRA,
    "fork that trains",
    after="""
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
""",
)
piece(
    EXTRA,
    "fork that leaves",
    after="""
if k == 115:
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sys.exit(5)
    say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
)
piece(
    EXTRA,
    "forked pool",
    start="import multiprocessing",
    setup="""
def square(v):
    return v * v, len(os.environ)
""",
    after="""
if k == 105:
    with multiprocessing.get_context("fork").Pool(2) as pool_of_forks:
        say(pool_of_forks.map(square, range(5)))
""",
)
piece(
    EXTRA,
    "spawned process",
    weight=0.3,
    start="import multiprocessing",
    after="""
if k == 100:
    child = multiprocessing.get_context("spawn").Process(target=os.listdir, args=(".",))
    child.start()
    child.join()
    say(child.exitcode)
""",
)
piece(
    EXTRA,
    "subprocess",
    start="import subprocess",
    after="""
if k % 100 == 50:
    done = subprocess.run([sys.executable, "-c", "import os, sys; print(sorted(os.environ), sys.argv, sys.path)"],
                          capture_output=True, text=True)
    say(done.returncode, done.stdout, done.stderr)
if k == 55:
    os.system("echo from a shell; ls -1; echo $PYTHONPATH")
""",
)
piece(
    EXTRA,
    "subprocess that trains",
    weight=0.3,
    start="import subprocess",
    after="""
if k == 65:
    code = (
        "import torch; m = torch.nn.Linear(4, 4); o = torch.optim.SGD(m.parameters(), 0.1)\\n"
        "for _ in range(90): o.zero_grad(); m(torch.ones(2, 4)).sum().backward(); o.step()\\n"
        "print(torch.isfinite(m.weight).all().item())"
    )
    say(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))
""",
)
piece(
    EXTRA,
    "descriptors inherited",
    start="import subprocess",
    after="""
if k == 75:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    subprocess.run(["sh", "-c", f"echo inherited >&{write}; ls /proc/self/fd | wc -l"], close_fds=False)
    os.close(write)
    say(os.read(read, 20))
""",
)
piece(
    EXTRA,
    "slow steps",
    after="""
if k % 20 == 19:
    time.sleep(0.002)
""",
)
