"""Whatever an arm's program does, and by whatever way, nothing of the user's is changed; what is honest goes on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gobrrr.trial.sandbox import landlock, limits
from gobrrr.trial.sandbox.limits import Limits
from gobrrr.trial.sandbox.workspace import SMALL_BYTES, Workspace
from gobrrr.trial.sandbox.writes import PYTHON, REFUSED, UNPROTECTED

HOOK = "import os; from gobrrr.capture.process.config import Config; from gobrrr.trial.sandbox.writes import keep_out\n"
HOOK += "keep_out(Config(os.environ['OWN_'], source=os.environ['HOME_']))\n"
START = "import os, sys; home = os.environ['HOME_']; inside = home + '/data'; small = inside + '/small'\n"
LIBC = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
FOLDER = "d = os.open(inside, os.O_RDONLY); "

EVERYWHERE = {  # what the kernel and Python's audit events both see
    "over a file": "open(small, 'w')",
    "onto the end of one": "open(small, 'a')",
    "into one": "open(small, 'r+')",
    "a new file": "open(inside + '/new', 'w')",
    "by os.open": "os.open(inside + '/new', os.O_CREAT | os.O_WRONLY)",
    "a folder": "os.makedirs(home + '/runs/1')",
    "a removal": "os.remove(small)",
    "a rename": "os.rename(small, inside + '/other')",
    "a rename into the copy": "os.rename(small, 'mine')",
    "replaced by one's own": "open('mine', 'w').close(); os.replace('mine', small)",
    "by shutil": "__import__('shutil').rmtree(inside)",
    "copied over": "__import__('shutil').copy('train.py', small)",
    "by pathlib": "__import__('pathlib').Path(small).write_text('')",
    "a symbolic link": "os.symlink('train.py', inside + '/new')",
    "a hard link to it": "os.link(small, 'mine'); open('mine', 'w').write('x')",
    "a hard link in it": "os.link('train.py', inside + '/new')",
    "cut off": "os.truncate(small, 0)",
    "through the root": "open('/proc/self/root' + small, 'w')",
    "through the current folder": "os.chdir(inside); open('/proc/self/cwd/small', 'w')",
    "from its folder": "os.chdir(inside); open('small', 'w')",
    "by the way up": "open(os.path.relpath(small), 'w')",
    "through a link made here": "os.symlink(small, 'mine'); os.chdir('data'); open('../mine', 'w') if "
    "os.path.getsize('../mine') == 0 else open(os.path.realpath('../mine'), 'w')",
    "through a link to its folder": "os.symlink(inside, 'mine'); open('mine/small', 'w')",
    "through a dangling link": "os.symlink(inside + '/new', 'mine'); open('mine', 'w')",
    "removed by its folder": FOLDER + "os.remove('small', dir_fd=d)",
    "renamed by its folder": FOLDER + "os.rename('small', 'other', src_dir_fd=d, dst_dir_fd=d)",
    "a folder by its folder": FOLDER + "os.mkdir('new', dir_fd=d)",
    "a folder gone by its folder": "d = os.open(home, os.O_RDONLY); os.rmdir('empty', dir_fd=d)",
    "a link by its folder": FOLDER + "os.symlink('x', 'new', dir_fd=d)",
    "a thread": "e = []; import threading; threading.excepthook = lambda a: e.append(a.exc_value); "
    "t = threading.Thread(target=lambda: open(small, 'w')); t.start(); t.join(); raise e[0]",
    "a forked worker": "import multiprocessing as m; p = m.get_context('fork').Process(target=open, "
    "args=(small, 'w')); p.start(); p.join(); sys.exit(p.exitcode)",
}
KERNEL = {  # what the kernel alone sees
    "a shell": "sys.exit(os.waitstatus_to_exitcode(os.system(f'echo x > {small}')))",
    "another Python": "import subprocess; "
    "subprocess.run([sys.executable, '-c', f'open({small!r}, \"w\")'], check=True)",
    "opened by its folder": FOLDER + "os.open('small', os.O_WRONLY, dir_fd=d)",
    "made by its folder": FOLDER + "os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=d)",
    "a pipe": "os.mkfifo(inside + '/new')",
    "a pipe by its folder": FOLDER + "os.mkfifo('new', dir_fd=d)",
    "a nameless file": "f = os.open(inside, os.O_TMPFILE | os.O_RDWR); os.link(f'/proc/self/fd/{f}', inside + '/new')",
    "from C": LIBC + "f = libc.open(small.encode(), os.O_WRONLY | os.O_TRUNC); "
    "f < 0 and sys.exit(1); libc.write(f, b'x', 1)",
    "cut off from C": LIBC + "sys.exit(libc.truncate(small.encode(), ctypes.c_long(0)) and 1)",
    "a database": "import sqlite3; sqlite3.connect(home + '/data.db').execute('create table t (x)')",
    "reserved from C": LIBC + "f = libc.open(small.encode(), os.O_RDWR); libc.fallocate(f, 0, ctypes.c_long(0), "
    "ctypes.c_long(9999)) and sys.exit(1)",
    "sent into": "i = os.open('train.py', os.O_RDONLY); o = os.open('small', os.O_WRONLY, dir_fd=os.open(inside, 0)); "
    "os.sendfile(o, i, 0, 3)",
    "copied in the kernel": "i = os.open('train.py', 0); o = os.open('small', os.O_RDWR, dir_fd=os.open(inside, 0)); "
    "os.copy_file_range(i, o, 3)",
    "reopened": "f = os.open(small, os.O_RDONLY); os.open(f'/proc/self/fd/{f}', os.O_WRONLY)",
    "an archive": "import subprocess; subprocess.run(['tar', '-cf', inside + '/new', 'train.py'], check=True)",
    "a spawned worker": "import multiprocessing as m; p = m.get_context('spawn').Process(target=open, "
    "args=(small, 'w')); p.start(); p.join(); sys.exit(p.exitcode)",
}
METADATA = {  # what Landlock does not see
    "its mode": "os.chmod(small, 0o600)",
    "its mode by its folder": FOLDER + "os.chmod('small', 0o600, dir_fd=d)",
    "its mode by a descriptor": "os.fchmod(os.open(small, 0), 0o600)",
    "its times": "os.utime(small, (1, 1))",
    "its owner": "os.chown(small, os.getuid(), os.getgid()); os.chmod(small, 0o600)",
    "its attributes": "os.setxattr(small, 'user.x', b'x')",
}
TORCH = {
    "torch.from_file": "import torch; torch.from_file(small, shared=True, size=4, dtype=torch.uint8).fill_(0)",
    "torch.save": "import torch; torch.save(1, small)",
    "torch.jit.save": "import torch; torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), small)",
}
MEANS = (landlock.LANDLOCK, landlock.MOUNTS)


def available(by: str) -> bool:
    """Whether this machine has it."""
    if by == landlock.LANDLOCK:
        return landlock.abi() >= landlock.OLDEST_ABI
    return not subprocess.run(landlock.confined(["true"], by, os.devnull), capture_output=True).returncode


HERE = [by for by in MEANS if available(by)]
needs_kernel = pytest.mark.skipif(not HERE, reason="this kernel has neither Landlock nor user namespaces")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    source = tmp_path / "home"
    (source / "data").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "train.py").write_text("print(1)\n")
    (source / "data" / "small").write_text("small")
    (source / "data" / "large").write_bytes(b"x" * (SMALL_BYTES + 1))
    (source / "data.db").write_bytes(b"")
    return source


def everything(home: Path) -> dict[str, Any]:
    """All that there is to know of a folder, but when it was last read."""
    found: dict[str, Any] = {}
    for path in (home, *sorted(home.rglob("*"))):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        attributes = tuple(os.listxattr(path, follow_symlinks=False))
        found[str(path)] = (state.st_mode, state.st_mtime_ns, state.st_size, state.st_nlink, content, attributes)
    return found


class Arm:
    """An arm's folder, in which pieces of code run as its program does."""

    def __init__(self, home: Path, folder: Path, by: str, within: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.folder, self.by, self.within = home, folder, by, within
        self.patch = monkeypatch
        folder.mkdir()
        self.work = Workspace(home, folder / "work").make()

    def run(self, code: str, hook: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        """With the kernel's means, Python's hook, or both."""
        self.patch.setattr(limits, "protection", lambda source, within: self.by)
        code = (HOOK if hook else "") + START + code
        env = {**os.environ, "HOME_": str(self.home), "OWN_": str(self.folder), "OMP_NUM_THREADS": "1", **variables}
        start = limits.start([sys.executable, "-c", code], env, self.folder, self.home, self.within)
        with (self.folder / "stderr").open("w") as err:
            done = subprocess.run(start.command, env=start.env, cwd=self.work, stdout=subprocess.PIPE, stderr=err,
                                  text=True)  # fmt: skip
        if start.scratch is not None:
            shutil.rmtree(start.scratch)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout,
                                           (self.folder / "stderr").read_text())  # fmt: skip


@pytest.fixture
def arm(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    return lambda by, within=limits.AT_HOME: Arm(home, tmp_path / "arm", by, within, monkeypatch)


@pytest.mark.skipif(landlock.LANDLOCK not in HERE, reason="no Landlock here")
@pytest.mark.parametrize("how", {**EVERYWHERE, **KERNEL})
def test_landlock_keeps_everything_out(how: str, home: Path, arm) -> None:
    before = everything(home)
    done = arm(landlock.LANDLOCK).run({**EVERYWHERE, **KERNEL}[how], hook=False)
    assert everything(home) == before, how
    assert done.returncode not in (0, 125), done.stderr


@pytest.mark.skipif(landlock.MOUNTS not in HERE, reason="no user namespaces here")
@pytest.mark.parametrize("how", {**EVERYWHERE, **KERNEL, **METADATA})
def test_read_only_mounts_keep_out_even_changes_of_mode_and_time(how: str, home: Path, arm) -> None:
    before = everything(home)
    done = arm(landlock.MOUNTS).run({**EVERYWHERE, **KERNEL, **METADATA}[how], hook=False)
    assert everything(home) == before, how
    assert done.returncode not in (0, 125), done.stderr


@pytest.mark.parametrize("how", {**EVERYWHERE, **METADATA})
def test_python_itself_tells_what_was_refused(how: str, home: Path, arm) -> None:
    here, before = arm(PYTHON), everything(home)
    done = here.run({**EVERYWHERE, **METADATA}[how])
    assert everything(home) == before and done.returncode == 1
    assert "gobrrr keeps this trial from writing outside its own folder" in done.stderr, done.stderr
    assert str(home) in (here.folder / REFUSED).read_text()
    assert f"it writes to {home}" in limits.refusal(here.folder)


@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("how", TORCH)
def test_the_kernel_keeps_torchs_own_writers_out(how: str, home: Path, arm) -> None:
    pytest.importorskip("torch")
    before = everything(home)
    done = arm(HERE[0]).run(TORCH[how], hook=False)
    assert done.returncode == 1 and everything(home) == before


@needs_kernel
def test_a_refusal_that_only_the_kernel_saw_has_its_reason(home: Path, arm) -> None:
    here = arm(HERE[0])
    linked = LIBC + "libc.open(b'data/large', os.O_RDWR) < 0 and sys.exit(os.strerror(ctypes.get_errno()))"
    for code in (
        KERNEL["another Python"],
        KERNEL["a database"],
        KERNEL["a database"].replace("data.db", "new"),
        linked,
    ):
        assert here.run(code).returncode == 1
        assert "most likely it writes outside its own copy" in limits.refusal(here.folder), code
    here.run("sys.exit('the disk is full')")
    assert limits.refusal(here.folder) == ""


def test_a_program_that_goes_on_after_a_refusal_fails_for_its_own_reason(home: Path, arm) -> None:
    here = arm(PYTHON)
    code = "try: open(small, 'w')\nexcept PermissionError as e: assert e.errno == 13\nsys.exit('no more memory')"
    assert here.run(code).returncode == 1
    assert limits.refusal(here.folder).startswith("it was kept from writing to")


@pytest.mark.parametrize("by", [PYTHON, UNPROTECTED])
def test_without_a_kernel_other_programs_and_databases_are_refused_unless_allowed(by: str, home: Path, arm) -> None:
    here, refused = arm(by), int(by == PYTHON)
    for code in (
        "os.system('true')", "import subprocess; subprocess.run(['true'])", "os.posix_spawn('/bin/true', ['true'], {})",
        "import sqlite3; sqlite3.connect(home + '/data.db')",
    ):  # fmt: skip
        assert here.run(code).returncode == refused, code
    assert here.run("import sqlite3; sqlite3.connect('data.db')").returncode == 0
    start = "import subprocess; exec(\"subprocess.run(['true'])\", dict(globals(), __name__={!r}))"
    assert here.run(start.format("torch._inductor.cpp_builder")).returncode == 0  # a compiler of PyTorch's
    assert here.run(start.format("triton_of_mine")).returncode == refused


def test_without_protection_only_the_users_folder_is_kept_from_python(home: Path, tmp_path: Path, arm) -> None:
    here = arm(UNPROTECTED)
    elsewhere = tmp_path / "elsewhere"
    assert here.run(f"open({str(elsewhere)!r}, 'w')").returncode == 0 and elsewhere.exists()
    assert here.run("open(small, 'w')").returncode == 1


@pytest.mark.parametrize("by", [*HERE, PYTHON])
def test_reading_is_free_and_a_folder_that_is_allowed_is_written_to(by: str, home: Path, tmp_path: Path, arm) -> None:
    elsewhere, code = tmp_path / "elsewhere", "open(small).read(); open(os.environ['TO'] + '/x', 'w')"
    elsewhere.mkdir()
    here = arm(by)
    assert here.run(code, TO=str(elsewhere)).returncode == 1 and not list(elsewhere.iterdir())
    here.within = Limits((elsewhere,))
    assert here.run(code, TO=str(elsewhere)).returncode == 0 and list(elsewhere.iterdir())


@pytest.mark.parametrize("by", [*HERE, PYTHON])
def test_what_is_written_through_a_link_stays_in_the_workspace(by: str, home: Path, arm) -> None:
    here, before = arm(by), everything(home)
    code = (
        "open('data/large', 'ab').write(b'y'); open('data/small', 'w').write('other'); os.chmod('data/small', 0o600); "
        "os.makedirs('data', exist_ok=True); os.remove('train.py'); os.mkdir('a'); "
        "open('b', 'w'); os.rename('b', 'a/b')"
    )
    done = here.run(code)
    assert done.returncode == 0, done.stderr
    assert everything(home) == before
    assert (here.work / "data" / "large").stat().st_size == SMALL_BYTES + 2
    assert (here.work / "data" / "small").read_text() == "other" and not (here.work / "train.py").exists()


BESIDE = {
    "a new file": "open('../data/new', 'w')",
    "over a file": "open('../data/small', 'w')",
    "by a name from the root": "open(os.path.abspath('../data/new'), 'w')",
    "two folders up": "open('../../{above}/data/new', 'w')",
    "a removal": "os.remove('../data/small')",
    "a folder": "os.mkdir('../data/new')",
    "replaced": "open('mine', 'w').close(); os.replace('mine', '../data/small')",
    "its mode": "os.chmod('../data', 0o700)",
}


@pytest.fixture
def beside(home: Path) -> Path:
    folder = home.parent / "data"
    folder.mkdir(mode=0o755)
    (folder / "small").write_text("small")
    (home.parent / "log").write_text("theirs")
    return folder


@pytest.mark.parametrize("by", [*HERE, PYTHON, UNPROTECTED])
@pytest.mark.parametrize("how", BESIDE)
def test_what_lies_beside_the_folder_is_read_and_not_written(how: str, by: str, beside: Path, arm) -> None:
    before, here = everything(beside), arm(by)
    done = here.run("assert open('../data/small').read() == 'small'; " + BESIDE[how].format(above=beside.parent.name))
    assert done.returncode == 1 and everything(beside) == before, done.stderr
    assert f"it writes to {beside}" in limits.refusal(here.folder)


@pytest.mark.parametrize("by", HERE)
def test_the_kernel_keeps_programs_from_what_lies_beside_the_folder(by: str, beside: Path, arm) -> None:
    before = everything(beside)
    code = "sys.exit(os.waitstatus_to_exitcode(os.system('cat ../data/small && echo x > ../data/new')))"
    done = arm(by).run(code, hook=False)
    assert done.stdout == "small" and done.returncode not in (0, 125) and everything(beside) == before


@pytest.mark.parametrize("by", [*HERE, PYTHON, UNPROTECTED])
def test_beside_the_folder_too_what_is_allowed_is_written_to(by: str, beside: Path, arm) -> None:
    here = arm(by)
    here.within = Limits((beside, beside.parent / "log"))
    done = here.run("open('../data/new', 'w').write('x'); open('../log', 'w').write('ours')")
    assert done.returncode == 0, done.stderr
    assert (beside / "new").read_text() == "x" and (beside.parent / "log").read_text() == "ours"


@pytest.mark.parametrize("by", [*HERE, PYTHON, UNPROTECTED])
def test_what_is_made_or_changed_in_the_folder_above_stays_in_the_arms(by: str, beside: Path, arm) -> None:
    here = arm(by)
    done = here.run("open('../log', 'a').write('+'); open('../new', 'w').write('x'); os.rename('../data', '../gone')")
    assert done.returncode == 0, done.stderr
    assert (beside / "small").exists() and (beside.parent / "log").read_text() == "theirs"
    assert not (beside.parent / "new").exists()
    assert (here.work.parent / "log").read_text() == "theirs+" and (here.work.parent / "new").read_text() == "x"


def test_shared_memory_is_anybodys_but_not_by_a_link_of_the_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project there has others' files beside it, in what every program may write to."""
    if not os.access(limits.SHARED_MEMORY, os.W_OK):
        pytest.skip("no /dev/shm")
    with tempfile.TemporaryDirectory(dir=limits.SHARED_MEMORY) as name:
        project, data = Path(name, "project"), Path(name, "data")
        project.mkdir()
        data.mkdir()
        here = Arm(project, Path(name, "arm"), PYTHON, limits.AT_HOME, monkeypatch)
        assert here.run("open('../data/new', 'w')").returncode == 1 and not list(data.iterdir())


@pytest.mark.parametrize("by", [*HERE, PYTHON])
def test_a_large_database_is_copied_when_it_is_opened(by: str, home: Path, arm) -> None:
    with sqlite3.connect(home / "large.db") as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (zeroblob(?))", (SMALL_BYTES,))
    database.close()
    here, before = arm(by), everything(home)
    assert (here.work / "large.db").is_symlink()
    done = here.run(
        "import sqlite3; c = sqlite3.connect('large.db'); c.execute('insert into t values (1)'); c.commit()"
    )
    assert done.returncode == 0, done.stderr
    assert everything(home) == before and (here.work / "large.db").read_bytes() != (home / "large.db").read_bytes()


HONEST = {
    "temporary files": "import tempfile; t = tempfile.TemporaryDirectory(); open(t.name + '/x', 'w'); t.cleanup(); "
    "tempfile.NamedTemporaryFile()",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory as S; s = S(create=True, size=9); "
    "s.close(); s.unlink()",
    "a manager's socket": "import multiprocessing as m; m.get_context('fork').Manager().list([1]).append(2)",
    "memory with a name": "f = os.memfd_create('x'); os.ftruncate(f, 9); os.fchmod(f, 0o600)",
    "nowhere": "open(os.devnull, 'w').write('x'); open('/dev/stdout', 'w').write('x')",
    "its own process": "open('/proc/self/comm', 'w').write('x')",
    "a database": "import sqlite3; c = sqlite3.connect('mine.db'); c.execute('create table t (x)'); c.commit()",
}
HONEST_TORCH = {
    "workers": """
import torch
if __name__ == "__main__":
    for way in ("fork", "forkserver"):
        made = torch.utils.data.DataLoader(range(8), num_workers=2, multiprocessing_context=way)
        assert sum(int(x) for x in made) == 28
    torch.multiprocessing.set_sharing_strategy("file_system")
    assert sum(int(x) for x in torch.utils.data.DataLoader(range(8), num_workers=2)) == 28
""",
    "checkpoints": """
import torch
os.makedirs("runs/1"); torch.save({"x": torch.ones(3)}, "runs/1/new"); os.replace("runs/1/new", "last.pt")
assert torch.load("last.pt")["x"].sum() == 3
""",
    "compiled code": "import torch; assert torch.compile(lambda x: x.sin() + 1)(torch.zeros(9)).sum() == 9",
}


@pytest.mark.parametrize("by", [*HERE, PYTHON])
@pytest.mark.parametrize("what", HONEST)
def test_honest_programs_notice_nothing(what: str, by: str, arm) -> None:
    here = arm(by)
    done = here.run(HONEST[what])
    assert done.returncode == 0, done.stderr
    assert not (here.folder / REFUSED).exists()


@pytest.mark.slow
@pytest.mark.parametrize("by", [*HERE, PYTHON])
@pytest.mark.parametrize("what", HONEST_TORCH)
def test_honest_programs_of_torchs_notice_nothing(what: str, by: str, arm) -> None:
    pytest.importorskip("torch")
    done = arm(by).run(HONEST_TORCH[what])
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_torch_save_copies_links_and_is_told_of(home: Path, arm) -> None:
    pytest.importorskip("torch")
    here, before = arm(PYTHON), everything(home)
    save = "import torch; from gobrrr.guard.watch import effects; effects.tell_of_torch_save(); torch.save(1, {})"
    assert here.run(save.format("'data/large'")).returncode == 0
    assert here.run(save.format("small")).returncode == 1 and str(home) in limits.refusal(here.folder)
    assert everything(home) == before
