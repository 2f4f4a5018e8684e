"""Edits read from where people have them: a patch, an edited copy, two commits, a setting; none of it is trusted.

Git applies, merges and looks up; it is started without the user's configuration, which may change what a diff means.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import io
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

from gobrrr.errors import GobrrrError
from gobrrr.remedies.edits import program
from gobrrr.system import files
from gobrrr.system.escape import is_plain, plain
from gobrrr.trial.edit.program_edit import MOST_BYTES, ProgramEdit, check_name, check_path, check_size
from gobrrr.trial.sandbox.workspace import LEFT_OUT, OUTPUT_MARK

MOST_PATCH_BYTES = 16 << 20
"""Bytes of a patch (proposed: the largest that an agent has made would settle it)."""
MOST_SHOWN, MOST_COMPARED = 200_000, 1 << 20
"""Characters of a diff that are kept, bytes of a file that difflib is given, whose time is quadratic (proposed)."""
GIT_S = 120
"""Seconds that git may take (proposed: a commit of the largest repository of a user's would settle it)."""
Contents = Mapping[str, "bytes | None"]
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_HEADER = re.compile(rb"(--- |\+\+\+ |(?:rename|copy) (?:from|to) |diff --git )(.*)")
_LINK = "120000"
"""Mode of a link in a tree of Git's."""
_TWO_FILES = re.compile(rb"^--- ([^\n]+)\n\+\+\+ ([^\n]+)\n(?=@@ )", re.MULTILINE)
_MAKE = "make it with git diff, or diff -u"
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"


def from_patch(file: Path | Literal["-"], source: Path) -> ProgramEdit:
    """The edit that a diff is: of git's or of `diff -u`, with prefixes or none. "-" is the standard input."""
    name = "standard input" if file == "-" else plain(Path(file).name)
    try:
        patch = sys.stdin.buffer.read(MOST_PATCH_BYTES + 1) if file == "-" else files.read(file, MOST_PATCH_BYTES)
    except OSError as error:
        raise GobrrrError(f"{plain(str(file))} cannot be read: {error.strerror}") from error
    if len(patch) > MOST_PATCH_BYTES:
        raise GobrrrError(f"{name} is larger than {MOST_PATCH_BYTES >> 20} MiB", "--with takes an edited copy")
    return from_diff(name, patch, source)


def from_diff(name: str, patch: bytes, source: Path) -> ProgramEdit:
    """The edit that the bytes of a diff are. Raises GobrrrError where it does not apply."""
    if not patch.strip():
        raise GobrrrError(f"{name} is empty: there is no edit to race", _MAKE)
    if b"diff --git " not in patch:
        patch = _TWO_FILES.sub(partial(_as_one, source), patch)
    headers = list(_headers(name, patch))
    if not headers:
        raise GobrrrError(f"{name} is no diff: no file is named in it", _MAKE)
    for path, _ in headers:
        check_name(name, path)
    refusal = ""
    for strip, paths in _strips(headers, source):
        for path in paths:
            check_path(name, path)
            _check_way(name, source, path)
        check_size(name, len(paths), sum((source / path).stat().st_size for path in paths if (source / path).exists()))
        before = {path: _content(source / path) for path in paths}
        with _scratch(before) as folder:
            bare = [] if re.search(rb"^ ", patch, re.MULTILINE) else ["--unidiff-zero"]  # made without context
            done = _git(folder, "apply", f"-p{strip}", "--whitespace=nowarn", *bare, "-", given=patch)
            if done.returncode == 0:
                after = dict.fromkeys(paths) | _found(name, folder)
                changed = {path: data for path, data in after.items() if data != before.get(path)}
                if not changed:
                    raise GobrrrError(f"{name} changes no file's content: there is no edit to race", _MAKE)
                return ProgramEdit(name, changed, diff=_shown(before, changed))
        refusal = refusal or done.stderr.decode(errors="replace")
    hint = (
        "its lines are too few or too many" if "corrupt patch" in refusal else "make it against the files as they are"
    )
    raise GobrrrError(f"{name} does not apply: {_reason(refusal)}", hint)


def told(
    name: str, diff: str, env: Mapping[str, str], args: tuple[str, ...] | None, source: Path
) -> ProgramEdit:  # fmt: skip
    """The edit that a receipt tells of. Raises GobrrrError where its diff was cut, or does not apply any more."""
    empty = re.search(r"^--- /dev/null\n\+\+\+ [^\n]*\n(?!@@)", diff, re.MULTILINE)  # a new file without a line
    if empty or any(line.startswith(("... cut at ", "Binary file ")) for line in diff.splitlines()):
        raise GobrrrError(f"the receipt does not hold all of {name}", "prove it again")
    for variable, value in env.items():
        from_env(f"{variable}={value}")
    changed = from_diff(name, diff.encode(), source).files if diff else {}
    return ProgramEdit(name, changed, dict(env), args, diff)


def from_folder(folder: Path, source: Path) -> ProgramEdit:
    """The edit that makes the program into an edited copy of it, or of a part. What is only in the program's folder
    stays: data, and modules that were not copied."""
    name = plain(str(folder))
    if not folder.is_dir():
        raise GobrrrError(f"{name} is no folder", "--with takes a folder with the edited program")
    if folder.samefile(source):
        raise GobrrrError(f"{name} is the program's own folder", "--with takes an edited copy of it")
    after: dict[str, bytes | None] = {}
    size = 0
    for path in _walked(folder, source):
        facts = (folder / path).lstat()
        if stat.S_ISLNK(facts.st_mode) and not _same_link(folder / path, source / path):
            raise GobrrrError(f"{plain(path)} in {name} is a link to elsewhere", "put the file itself there")
        if stat.S_ISREG(facts.st_mode) and not _same(folder / path, source / path):
            size += facts.st_size
            check_size(name, len(after) + 1, size)
            after[path] = _content(folder / path)
    if not after:
        raise GobrrrError(f"{name} has no file that differs from the program's", "there is no edit to race")
    return ProgramEdit(
        name, after, diff=_shown({path: _content(source / path, MOST_COMPARED) for path in after}, after)
    )


def from_commits(begin: str, end: str, source: Path) -> tuple[ProgramEdit, ProgramEdit]:
    """The edits that make the working folder into either commit's; with no `end` the second is none at all."""
    if _git(source, "rev-parse", "--is-inside-work-tree", inside=True).stdout.strip() != b"true":
        raise GobrrrError(f"{plain(str(source))} is in no Git repository", "--with takes an edited copy instead")
    trees = _tree(begin, source), _tree(end or "HEAD", source)
    tracked = {*trees[0], *trees[1], *_split(_git(source, "ls-files", "-z", inside=True).stdout)}
    base = _overlay(begin, trees, tracked, source)
    edit = _overlay(end, trees[::-1], tracked, source) if end else {}
    both = [path for path in sorted({*base, *edit}) if path not in base or path not in edit or base[path] != edit[path]]
    if not both:
        raise GobrrrError(
            f"{plain(begin)} and {plain(end) or 'the working tree'} do not differ in the program's folder"
        )
    now = {path: _content(source / path, MOST_COMPARED) for path in both if path not in base or path not in edit}
    shown = _shown({path: base.get(path, now.get(path)) for path in both}, {p: edit.get(p, now.get(p)) for p in both})
    name = f"{plain(begin)}..{plain(end) or 'working tree'}"
    return ProgramEdit(plain(begin), base), ProgramEdit(name, edit, diff=shown)


def from_env(text: str) -> ProgramEdit:
    """The edit that sets a variable: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or "\0" in value:
        raise GobrrrError(f"{plain(text)} sets no variable", "--env takes NAME=VALUE")
    if name.startswith("GOBRRR") or name == "PYTHONPATH":
        raise GobrrrError(f"{name} cannot be raced: gobrrr watches the program by it", "set it for both sides")
    return ProgramEdit(plain(text), env={name: value})


def from_args(text: str) -> ProgramEdit:
    """The edit that gives the program other words, written as for a shell."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise GobrrrError(f"--args {plain(text)} are no words: {error}", "quote it as for a shell") from error
    if "\0" in text:
        raise GobrrrError("--args has a NUL byte, which no command line can have")
    return ProgramEdit(f'--args "{plain(text)}"', args=words)


def together(edits: Sequence[ProgramEdit], source: Path) -> ProgramEdit:
    """All of the edits in one, each merged into those before it. Raises GobrrrError where two of them conflict."""
    before = {path: _content(source / path) for edit in edits for path in edit.files}
    after: dict[str, bytes | None] = {}
    env: dict[str, str] = {}
    args: tuple[str, ...] | None = None
    for number, edit in enumerate(edits):
        for path, data in edit.files.items():
            if path not in after:
                after[path] = data
            elif after[path] != data:
                after[path] = _merged(after[path], before[path], data)
                if after[path] is None:
                    raise _conflict(plain(path), edit, [other for other in edits[:number] if path in other.files])
        for name, value in edit.env.items():
            if env.setdefault(name, value) != value:
                raise _conflict(name, edit, [other for other in edits[:number] if name in other.env])
        if None not in (args, edit.args) and args != edit.args:
            raise _conflict("the arguments", edit, [other for other in edits[:number] if other.args is not None])
        args = args if edit.args is None else edit.args
    return ProgramEdit(" + ".join(edit.name for edit in edits), after, env, args, _shown(before, after))


def _conflict(what: str, edit: ProgramEdit, others: Sequence[ProgramEdit]) -> GobrrrError:
    names = " + ".join(other.name for other in others)
    return GobrrrError(f"{names} and {edit.name} do not go together: both change {what}", "race each alone")


def _merged(one: bytes | None, base: bytes | None, other: bytes | None) -> bytes | None:
    """Both changes of a file in one; None where they conflict, and where either removes or makes it."""
    if one is None or base is None or other is None:
        return None
    with _scratch({"one": one, "base": base, "other": other}) as folder:
        done = _git(folder, "merge-file", "-p", "one", "base", "other")
    return done.stdout if done.returncode == 0 else None


def _git(folder: Path, *words: str, given: bytes = b"", inside: bool = False) -> subprocess.CompletedProcess[bytes]:
    """Return what git answers in a folder, with nobody's configuration but that of the repository which the folder is
    `inside` of; hooks, fetching and questions are off."""
    git = shutil.which("git")
    if git is None:
        raise GobrrrError("git is not installed, and reads the edit", "install git, or use --with")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ALLOC_LIMIT": str(4 * MOST_BYTES),  # a small delta may tell git to write without end
    }  # fmt: skip
    if not inside:
        env["GIT_CEILING_DIRECTORIES"] = str(folder.resolve().parent)
    # the user names the repository, and the program in it will run: whoever owns it
    settings = ("safe.directory=*", "core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.autocrlf=false")
    command = [git, *(word for setting in settings for word in ("-c", setting)), *words]
    try:
        return subprocess.run(
            command, cwd=folder, env=env, input=given, capture_output=True, timeout=GIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise GobrrrError(f"git {words[0]} took more than {GIT_S} s") from error
    except (OSError, ValueError) as error:
        raise GobrrrError(f"git {words[0]} cannot be started: {error}") from error


@contextlib.contextmanager
def _scratch(contents: Contents) -> Iterator[Path]:
    """A folder for a while, with these files in it."""
    with tempfile.TemporaryDirectory(prefix="gobrrr-edit-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        for path, data in contents.items():
            if data is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
        yield folder


def _as_one(source: Path, found: re.Match[bytes]) -> bytes:
    """Headers of `diff -u train.py faster.py` as of a change of the first file, where both are there."""
    old, new = (each.partition(b"\t")[0].strip() for each in found.groups())
    if old == new or not all((source / os.fsdecode(name)).is_file() for name in (old, new)):
        return found[0]
    return b"--- %s\n+++ %s\n" % (found[1], found[1])


def _headers(name: str, patch: bytes) -> Iterator[tuple[str, bool]]:
    """Names in a diff's headers, as they stand there, and whether they have a prefix where the diff has. What looks
    like a header in the lines of a hunk is none."""
    old = new = 0
    for line in patch.split(b"\n"):
        if old > 0 or new > 0:
            old -= line[:1] in b" -"
            new -= line[:1] in b" +"
        elif counts := _HUNK.match(line):
            old, new = (1 if count is None else int(count) for count in counts.groups())
        elif re.match(rb"(new file |new |old |deleted file )mode 1[26]0000", line):
            raise GobrrrError(f"{name} makes or changes a link or submodule: only plain files can be an edit")
        elif header := _HEADER.match(line.rstrip(b"\r")):
            kind, rest = header.groups()
            for found in _git_names(rest) if kind == b"diff --git " else [_unquoted(name, rest.split(b"\t")[0])]:
                if found != "/dev/null":
                    if found.startswith("/") or ".." in found.split("/") or "\0" in found:
                        check_path(name, found)
                    yield found, kind[:1] not in b"rc"


def _git_names(text: bytes) -> list[str]:
    """Both names of `diff --git`: all that there is for an empty, a binary or a moved file; none where they differ, for
    such a diff names them once more."""
    quoted = re.fullmatch(rb'("(?:[^"\\]|\\.)*") ("(?:[^"\\]|\\.)*")', text)
    half = len(text) // 2
    pair = quoted.groups() if quoted else (text[:half], text[half + 1 :])
    names = [_unquoted("the diff", part) for part in pair]
    return names if names[0].split("/")[1:] == names[1].split("/")[1:] else []


def _unquoted(name: str, text: bytes) -> str:
    """A file name out of the quotes in which Git writes all but plain ones."""
    if text[:1] == b'"' and text[-1:] == b'"' and len(text) > 1:
        try:
            text = text[1:-1].decode("unicode_escape").encode("latin-1")
        except ValueError as error:
            raise GobrrrError(f"{name} has a file name that cannot be read: {plain(text.decode('latin-1'))}") from error
    return os.fsdecode(text)


def _strips(headers: Sequence[tuple[str, bool]], source: Path) -> Iterator[tuple[int, list[str]]]:
    """How many leading folders of a diff's names are not the program's, and the names without them: the likeliest
    first, the others only where they name files that are there. A diff made further up names the program's folder."""
    lead = source.resolve().parts[1:]
    tried: dict[int, list[str]] = {}
    for strip in (1, 0, *range(2, len(lead) + 2)):
        cut = [(name.split("/"), strip if prefixed else max(strip - 1, 0)) for name, prefixed in headers]
        above = [parts[:number][-1:] for parts, number in cut if number]
        if all(len(parts) > number for parts, number in cut) and (strip < 2 or above == [[lead[-1]]] * len(above)):
            tried[strip] = sorted({"/".join(parts[number:]) for parts, number in cut})
    if len(tried[0]) > len(tried.get(1, tried[0])):  # a/x and b/x are one file
        del tried[0]
    bare = 0 in tried and len(headers) > len(tried[0])  # named twice alike: without prefixes
    there = {strip: sum((source / path).exists() for path in paths) for strip, paths in tried.items()}

    def unlikely(strip: int) -> tuple[int, bool, int]:
        above = [(source / path).parent for path in tried[strip] if (source / path).parent != source]
        return -there[strip], bare and strip != 0, sum(-1 if folder.is_dir() else 1 for folder in above)

    for number, strip in enumerate(sorted(tried, key=unlikely)):
        if number == 0 or there[strip]:
            yield strip, tried[strip]


def _check_way(name: str, source: Path, path: str) -> None:
    """Raises GobrrrError where a path of an edit leads through a link, or to what is no plain file."""
    place = source / path
    ways = [source / folder for folder in PurePosixPath(path).parents[:-1]] if path else []
    if any(way.is_symlink() for way in (place, *ways)) or (place.exists() and not place.is_file()):
        raise GobrrrError(f"{name} touches {plain(path)}: a link, behind one, or no plain file", "--with takes a copy")


def _found(name: str, folder: Path) -> dict[str, bytes | None]:
    """Contents of all files in a scratch folder."""
    found: dict[str, bytes | None] = {}
    for path in _walked(folder):
        if (folder / path).is_symlink():
            raise GobrrrError(f"{name} makes {plain(path)} a link: only plain files can be an edit")
        found[path] = _content(folder / path)
    return found


def _reason(text: str) -> str:
    """Return what git says first, in a line."""
    lines = [line.removeprefix("error: ") for line in text.splitlines() if line.startswith(("error: ", "fatal: "))]
    said = lines[0] if lines else "git says nothing"
    if failed := re.fullmatch(r"patch failed: (.*):(\d+)", said):
        return f"{plain(failed[1])} differs from what it expects at line {failed[2]} or a little below"
    return plain(said)


def _content(path: Path, most: int = MOST_BYTES) -> bytes | None:
    """A file's content, or its first `most` bytes and one more; None where there is no file."""
    try:
        return files.read(path, most)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise GobrrrError(f"{plain(str(path))} cannot be read: {error.strerror}") from error


def _walked(folder: Path, other: Path | None = None) -> Iterator[str]:
    """Paths of files and links in a folder, but for what no arm's copy has, environments, and the `other` folder."""
    for top, folders, names in os.walk(folder):
        here = Path(top)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(
            name for name in set(folders).difference(LEFT_OUT, links)
            if not any((here / name / mark).exists() for mark in (OUTPUT_MARK, "pyvenv.cfg"))
            and not (other is not None and (here / name).samefile(other))
        )  # fmt: skip
        yield from ((here / name).relative_to(folder).as_posix() for name in sorted({*names, *links} - LEFT_OUT))


def _same_link(link: Path, own: Path) -> bool:
    """Say whether a link of an edited copy leads where the program's own does, or to that itself."""
    with contextlib.suppress(OSError):
        if link.samefile(own):
            return True
    return own.is_symlink() and os.readlink(link) == os.readlink(own)  # noqa: PTH115


def _same(one: Path, other: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return filecmp.cmp(one, other, shallow=False)
    return False


def _tree(commit: str, source: Path) -> dict[str, tuple[str, str, int]]:
    """Mode, object and size of the files that a commit has in a folder of the repository."""
    asked = [] if commit.startswith("-") else ["rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    done = _git(source, *asked, inside=True) if asked else None
    if done is None or done.returncode:
        raise GobrrrError(f"there is no commit {plain(commit)} in the repository of {plain(str(source))}")
    done = _git(source, "ls-tree", "-r", "-l", "-z", done.stdout.decode().strip(), inside=True)
    if done.returncode:
        raise GobrrrError(f"git cannot read {plain(commit)}: {_reason(done.stderr.decode(errors='replace'))}")
    rows = [row.partition("\t") for row in _split(done.stdout)]
    facts = {path: row.split() for row, _, path in rows if LEFT_OUT.isdisjoint(path.split("/"))}
    found = {path: (mode, oid, int(size)) for path, (mode, kind, oid, size) in facts.items() if kind == "blob"}
    if not found:
        raise GobrrrError(
            f"{plain(commit)} has no file in {plain(str(source))}", "start it in the program's own folder"
        )
    return found


def _split(text: bytes) -> list[str]:
    return [os.fsdecode(row) for row in text.split(b"\0") if row]


def _overlay(
    commit: str, trees: Sequence[Mapping[str, tuple[str, str, int]]], tracked: set[str], source: Path
) -> Contents:  # fmt: skip
    """Return what makes the working folder into the first of both trees, a commit's. What Git does not track stays."""
    tree, other = trees
    after: dict[str, bytes | None] = {
        path: None
        for path in tracked.difference(tree)
        if LEFT_OUT.isdisjoint(path.split("/")) and _is_file(source / path)
    }
    wanted = {}
    for path, (mode, oid, size) in tree.items():
        changed = other.get(path, ("", "", 0))[:2] != (mode, oid)
        if mode == _LINK and changed:
            raise GobrrrError(f"{plain(path)} is a link that the commits change: only plain files can be an edit")
        if mode != _LINK and not _is_object(source / path, oid, size):
            wanted[path] = oid, size, changed
    check_size(plain(commit), len(wanted) + len(after), sum(size for _, size, _ in wanted.values()))
    oids = "".join(f"{oid}\n" for oid, _, _ in wanted.values()).encode()
    answer = io.BytesIO(_git(source, "cat-file", "--batch", given=oids, inside=True).stdout)
    for path, (oid, size, changed) in wanted.items():
        if answer.readline() != f"{oid} blob {size}\n".encode():
            raise GobrrrError(f"{plain(path)} of {plain(commit)} is not in the repository", "fetch it: git fetch")
        data = answer.read(size)
        answer.read(1)  # the line's end behind it
        now = _content(source / path)
        if data.startswith(_POINTER) and now is not None and not now.startswith(_POINTER):
            if changed:
                raise GobrrrError(f"{plain(path)} is in Git LFS, and the commits change it", "--with takes a copy")
        elif now is None or b"\0" in data or now.replace(b"\r\n", b"\n") != data:  # as core.autocrlf leaves it
            after[path] = data
    return after


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_object(path: Path, oid: str, size: int) -> bool:
    """Say whether a file's content is that of an object of Git's."""
    if not _is_file(path) or path.stat().st_size != size:
        return False
    known = hashlib.new("sha1" if len(oid) == 40 else "sha256", b"blob %d\0" % size, usedforsecurity=False)
    with files.opened(path) as file:
        while data := file.read(1 << 20):
            known.update(data)
    return known.hexdigest() == oid


def _shown(before: Contents, after: Contents) -> str:
    """A unified diff for people of the files that an edit changes, cut where it is long."""
    text = ""
    for number, path in enumerate(sorted(after)):
        text += _one_shown(path if is_plain(path) else plain(path), before.get(path), after[path])
        if len(text) > MOST_SHOWN:
            kept = text[: text.rfind("\n", 0, MOST_SHOWN) + 1]
            return f"{kept}... cut at {MOST_SHOWN // 1000} KB, in file {number + 1} of {len(after)}\n"
    return text


def _one_shown(name: str, before: bytes | None, after: bytes | None) -> str:
    one, other = _text(before), _text(after)
    if one is None or other is None:
        return f"Binary file {name} differs\n"
    text = program.diff({name: (one, other)})
    if before is None or after is None:
        text = text or f"--- a/{name}\n+++ b/{name}\n"
        gone = f"--- a/{name}" if before is None else f"+++ b/{name}"
        text = text.replace(gone, f"{gone[:4]}/dev/null", 1)
    return text


def _text(data: bytes | None) -> str | None:
    """A file's text; None for what is none, or is too long to be compared line by line."""
    if data is None:
        return ""
    with contextlib.suppress(UnicodeDecodeError):
        return None if len(data) > MOST_COMPARED or b"\0" in data else data.decode()
    return None
