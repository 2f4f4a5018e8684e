"""Edits are read as their tools mean them, put on a copy alone, and refused in one line where they are hostile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gobrrr.errors import GobrrrError
from gobrrr.trial.edit.program_edit import MOST_FILES, ProgramEdit
from gobrrr.trial.edit.reading import (
    MOST_PATCH_BYTES,
    from_args,
    from_commits,
    from_env,
    from_folder,
    from_patch,
    together,
    told,
)
from gobrrr.trial.edit.treatment import EditOnTrial
from gobrrr.trial.sandbox.workspace import Workspace

TEXT = "".join(f"line {number}\n" for number in range(20)).encode()


def git(folder: Path, *words: str) -> bytes:
    set_up = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *set_up, *words], cwd=folder, check=True, capture_output=True).stdout


def changed(text: bytes, line: int = 5) -> bytes:
    return text.replace(b"line %d" % line, b"LINE %d" % line, 1)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A program's folder in no repository."""
    folder = tmp_path / "program"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_bytes(TEXT)
    (folder / "pkg" / "net.py").write_bytes(TEXT)
    (folder / "data.bin").write_bytes(bytes(range(256)))
    return folder


@pytest.fixture
def repository(source: Path) -> Path:
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    return source


def patch(folder: Path, text: str | bytes, name: str = "faster.diff") -> Path:
    file = folder.parent / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def made(before: Path, after: dict[str, bytes | None], *options: str) -> bytes:
    """The diff that git makes of a program's folder and what its files become; the folder is as before."""
    git(before, "init", "-q")
    git(before, "add", "-A")
    git(before, "commit", "-qm", "one")
    for path, data in after.items():
        if data is None:
            (before / path).unlink()
        else:
            (before / path).parent.mkdir(parents=True, exist_ok=True)
            (before / path).write_bytes(data)
    git(before, "add", "-A")
    text = git(before, "diff", "--cached", "--binary", *options)
    git(before, "reset", "-q", "--hard")
    subprocess.run(["rm", "-rf", ".git"], cwd=before, check=True)
    return text


@pytest.mark.parametrize("options", [(), ("--no-prefix",), ("-M",), ("--src-prefix=i/", "--dst-prefix=w/")])
def test_a_patch_of_git_gives_what_git_would_write(source: Path, options: tuple[str, ...]) -> None:
    (source / "a b.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    (source / "na\u00efve.py").write_bytes(b"x = 1")
    (source / "moved.py").write_bytes(TEXT * 2)
    after: dict[str, bytes | None] = {
        "train.py": changed(TEXT), "pkg/net.py": None, "new/deep.py": b"n = 1\n", "data.bin": bytes(range(255, -1, -1)),
        "a b.py": b"x = 3\r\ny = 2\r\n", "na\u00efve.py": b"x = 2", "moved.py": None, "pkg/other.py": TEXT * 2,
    }  # fmt: skip
    edit = from_patch(patch(source, made(source, after, *options)), source)
    assert edit.files == after
    assert edit.name == "faster.diff"
    assert (source / "train.py").read_bytes() == TEXT


@pytest.mark.parametrize("names", [("old/train.py", "new/train.py"), ("train.py.orig", "train.py"), ("train.py",) * 2])
def test_a_plain_diff_is_read_with_any_names(source: Path, names: tuple[str, str]) -> None:
    hunk = "@@ -5,3 +5,3 @@\n line 4\n-line 5\n+LINE 5\n line 6\n"
    text = f"--- {names[0]}\t2026-01-01 00:00:00\n+++ {names[1]}\t2026-01-01 00:00:01\n{hunk}"
    assert from_patch(patch(source, text), source).files == {"train.py": changed(TEXT)}


@pytest.mark.parametrize("options", [(), ("--no-prefix",)])
def test_new_files_alone_land_where_the_diff_has_them(source: Path, options: tuple[str, ...]) -> None:
    text = made(source, {"pkg/one.py": b"1\n", "fresh/two.py": b"2\n"}, *options)
    assert from_patch(patch(source, text), source).files == {"pkg/one.py": b"1\n", "fresh/two.py": b"2\n"}


def test_a_diff_made_further_up_is_read_in_the_folder_of_the_program(source: Path) -> None:
    text = made(source.parent, {"program/pkg/net.py": changed(TEXT)})
    assert from_patch(patch(source, text), source).files == {"pkg/net.py": changed(TEXT)}


def test_a_removed_line_that_looks_like_a_header_is_none(source: Path) -> None:
    (source / "train.py").write_bytes(b"-- ../x\nb\n")
    text = "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,1 @@\n--- ../x\n b\n"
    assert from_patch(patch(source, text), source).files == {"train.py": b"b\n"}


def test_the_users_git_has_no_say(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / ".gitconfig"
    config.write_text("[core]\n\tautocrlf = true\n[apply]\n\tignoreWhitespace = change\n")
    for name, value in {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": "",
        "GIT_DIR": "/nowhere",
        "GIT_WORK_TREE": "/",
    }.items():
        monkeypatch.setenv(name, value)
    text = "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n-line 0\n+line 0  \n line 1\n"
    assert from_patch(patch(repository, text), repository).files == {"train.py": TEXT.replace(b"0\n", b"0  \n", 1)}
    with pytest.raises(GobrrrError, match="does not apply"):
        from_patch(patch(repository, text.replace(" line 1", " line  1")), repository)
    (repository / "train.py").write_bytes(changed(TEXT))
    assert from_commits("HEAD", "", repository)[0].files == {"train.py": TEXT}


NEW = "--- /dev/null\n+++ {}\n@@ -0,0 +1 @@\n+x\n"
HOSTILE = {
    "empty": ("", "is empty"),
    "blank": (" \n\n", "is empty"),
    "no diff": ("hello\n", "is no diff"),
    "absolute": (NEW.format("/nowhere/x"), "outside the program's folder"),
    "above": (NEW.format("b/../../x"), "outside the program's folder"),
    "beside": (NEW.format("../nowhere/x"), "outside the program's folder"),
    "quoted": (NEW.format('"b/\\056\\056/x"'), "outside the program's folder"),
    "git": (NEW.format("b/.git/hooks/x"), "no .git"),
    "GIT": (NEW.format("b/.GIT/hooks/x"), "no .git"),
    "nul": (NEW.format("b/a\0b"), "no file can have"),
    "quoted nul": (NEW.format('"b/a\\000b"'), "no file can have"),
    "too long": (NEW.format(f"b/{'x' * 300}"), "no file can have"),
    "through a link": (NEW.format("b/link/x"), "a link"),
    "onto a link": (NEW.format("b/link"), "a link"),
    "onto a folder": (NEW.format("b/pkg"), "no plain file"),
    "a new link": (f"diff --git a/l b/l\nnew file mode 120000\n{NEW.format('b/l')}", "a link"),
    "mode alone": ("diff --git a/train.py b/train.py\nold mode 100644\nnew mode 100755\n", "changes no file's content"),
    "other lines": ("--- a/train.py\n+++ b/train.py\n@@ -3 +3 @@\n-line 99\n+x\n", "differs from what it expects"),
    "no such file": ("--- a/no.py\n+++ b/no.py\n@@ -1 +1 @@\n-a\n+b\n", "no.py"),
    "cut off": ("--- a/train.py\n+++ b/train.py\n@@ -1,4 +1,4 @@\n-line 0\n", "does not apply"),
    "there already": (NEW.format("b/train.py"), "train.py"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_patch_is_refused_in_a_line(source: Path, case: str) -> None:
    (source / "link").symlink_to("/etc")
    text, said = HOSTILE[case]
    with pytest.raises(GobrrrError, match=said) as refused:
        from_patch(patch(source, text), source)
    assert refused.value.exit_code == 2
    assert refused.value.message.isprintable()


def test_a_patch_that_is_too_large_or_not_there_is_refused(source: Path) -> None:
    with pytest.raises(GobrrrError, match="larger than 16 MiB"):
        from_patch(patch(source, b"x" * (MOST_PATCH_BYTES + 1)), source)
    with pytest.raises(GobrrrError, match="cannot be read"):
        from_patch(source / "none.diff", source)


def test_without_git_a_line_says_so(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GobrrrError, match="git is not installed"):
        from_patch(patch(source, NEW.format("b/x")), source)


def test_an_edited_copy_keeps_what_it_does_not_have(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "__pycache__").mkdir(parents=True)
    (copy / "__pycache__" / "x.pyc").write_bytes(b"x")
    (copy / "train.py").write_bytes(changed(TEXT))
    (copy / "data").symlink_to("elsewhere")
    (source / "data").symlink_to("elsewhere")
    (copy / "data.bin").symlink_to(source / "data.bin")
    edit = from_folder(copy, source)
    assert edit.files == {"train.py": changed(TEXT)}
    assert "-line 5\n+LINE 5\n" in edit.diff


def test_an_edited_copy_may_lie_in_the_program(source: Path) -> None:
    copy = source / "edited"
    (copy / "pkg").mkdir(parents=True)
    (copy / "pkg" / "net.py").write_bytes(TEXT)
    (copy / "train.py").write_bytes(TEXT + b"more\n")
    assert from_folder(copy, source).files == {"train.py": TEXT + b"more\n"}


def test_copies_that_are_none_are_refused(source: Path, tmp_path: Path) -> None:
    for folder, said in ((tmp_path / "none", "is no folder"), (source / "pkg" / "..", "own folder")):
        with pytest.raises(GobrrrError, match=said):
            from_folder(folder, source)
    same = tmp_path / "same"
    subprocess.run(["cp", "-r", source, same], check=True)
    with pytest.raises(GobrrrError, match="no file that differs"):
        from_folder(same, source)
    (same / "train.py").unlink()
    (same / "train.py").symlink_to("/etc/passwd")
    with pytest.raises(GobrrrError, match="a link to elsewhere"):
        from_folder(same, source)


def test_commits_become_overlays_and_untracked_files_stay(repository: Path) -> None:
    (repository / "train.py").write_bytes(changed(TEXT))
    (repository / "added.py").write_bytes(b"x\n")
    git(repository, "add", "-A")
    git(repository, "rm", "-q", "pkg/net.py")
    git(repository, "commit", "-qm", "two")
    (repository / "untracked.csv").write_bytes(b"1")
    base, edit = from_commits("HEAD~1", "HEAD", repository)
    assert base.files == {"train.py": TEXT, "pkg/net.py": TEXT, "added.py": None}
    assert edit.files == {}
    assert edit.name == "HEAD~1..HEAD"
    assert "+LINE 5\n" in edit.diff
    back = from_commits("HEAD", "HEAD~1", repository)
    assert (back[0].files, back[1].files) == ({}, base.files)


def test_the_working_tree_is_raced_against_a_commit_of_a_subfolder(repository: Path) -> None:
    (repository / "pkg" / "net.py").write_bytes(changed(TEXT))
    base, edit = from_commits("HEAD", "", repository / "pkg")
    assert (base.files, edit.files) == ({"net.py": TEXT}, {})
    assert edit.name == "HEAD..working tree"
    assert "+LINE 5\n" in edit.diff


def test_what_git_keeps_in_other_forms_is_left_as_it_lies(repository: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%d\nsize 3\n"
    (repository / "venv").mkdir()
    for path, data in {"lfs.bin": pointer % 1, "crlf.py": b"a\nb\n", "venv/x.py": b"x"}.items():
        (repository / path).write_bytes(data)
    (repository / "link").symlink_to("data.bin")
    git(repository, "add", "-Af")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git(repository, "commit", "-qm", "two")
    (repository / "train.py").write_bytes(changed(TEXT))
    git(repository, "add", "train.py")
    git(repository, "commit", "-qm", "three")
    (repository / "lfs.bin").write_bytes(b"abc")
    (repository / "crlf.py").write_bytes(b"a\r\nb\r\n")
    assert [edit.files for edit in from_commits("HEAD~1", "HEAD", repository)] == [{"train.py": TEXT}, {}]
    (repository / "lfs.bin").write_bytes(pointer % 2)
    git(repository, "commit", "-qam", "four")
    (repository / "lfs.bin").write_bytes(b"abc")
    with pytest.raises(GobrrrError, match="Git LFS"):
        from_commits("HEAD~1", "HEAD", repository)
    git(repository, "checkout", "-q", "HEAD~1", "--", "lfs.bin")
    (repository / "link").unlink()
    (repository / "link").symlink_to("/etc")
    git(repository, "commit", "-qam", "five")
    with pytest.raises(GobrrrError, match="is a link that the commits change"):
        from_commits("HEAD~1", "", repository)


def test_a_repository_runs_nothing_while_it_is_read(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (repository / ".gitattributes").write_text("*.py filter=f diff=f\n")
    for name in ("core.fsmonitor", "core.pager", "filter.f.smudge", "filter.f.clean", "diff.f.textconv"):
        git(repository, "config", name, f"touch {ran}; cat")
    (repository / "train.py").write_bytes(changed(TEXT))
    ran.unlink(missing_ok=True)
    assert from_commits("HEAD", "", repository)[0].files["train.py"] == TEXT
    assert not ran.exists()


@pytest.mark.parametrize("name", ["nowhere", "--output=x", "HEAD:train.py", "HEAD..HEAD", "", "a\0b"])
def test_commits_that_are_none_are_refused(repository: Path, name: str) -> None:
    with pytest.raises(GobrrrError):
        from_commits(name, "HEAD", repository)
    assert not (repository / "x").exists()


def test_commits_need_a_repository_and_a_difference(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(GobrrrError, match="do not differ"):
        from_commits("HEAD", "", repository)
    with pytest.raises(GobrrrError, match="no Git repository"):
        from_commits("HEAD", "", tmp_path)


def test_settings_are_edits(source: Path) -> None:
    assert from_env("OMP_NUM_THREADS=2=3").env == {"OMP_NUM_THREADS": "2=3"}
    assert from_args("--lr 1 'a b'").args == ("--lr", "1", "a b")
    assert from_args("").args == ()
    for text in ("NAME", "=x", "1A=2", "A B=1", "A=\0", "PYTHONPATH=x", "GOBRRR_X=1"):
        with pytest.raises(GobrrrError):
            from_env(text)
    with pytest.raises(GobrrrError, match="no words"):
        from_args("'a")


def test_edits_go_together_where_they_do_not_conflict(source: Path) -> None:
    one = ProgramEdit("a.diff", {"train.py": changed(TEXT, 1)}, {"A": "1"})
    two = ProgramEdit("b.diff", {"train.py": changed(TEXT, 15), "pkg/net.py": None})
    both = together([one, two], source)
    assert both.files == {"train.py": changed(changed(TEXT, 1), 15), "pkg/net.py": None}
    assert (both.name, both.env) == ("a.diff + b.diff", {"A": "1"})
    for other in (
        ProgramEdit("c.diff", {"train.py": TEXT.replace(b"line 1\n", b"else\n")}),
        ProgramEdit("c.diff", {"train.py": None}),
        ProgramEdit("c.diff", env={"A": "2"}),
    ):
        with pytest.raises(GobrrrError, match=r"a\.diff and c\.diff do not go together"):
            together([one, other], source)


def test_what_is_put_on_a_copy_never_reaches_the_users_files(source: Path, tmp_path: Path) -> None:
    (source / "big.py").write_bytes(b"#" * (2 << 20))
    (source / "run.sh").write_bytes(b"x")
    (source / "run.sh").chmod(0o755)
    theirs = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    mirror = Workspace(source, tmp_path / "arm").make()
    assert (mirror / "big.py").is_symlink()
    (mirror / "pkg" / "net.py").unlink()
    (mirror / "pkg").rmdir()
    (mirror / "pkg").symlink_to(source / "pkg")  # as a folder of another file system is
    after = {"big.py": b"1", "pkg/new.py": b"2", "run.sh": b"y", "train.py": None, "train.py/deep/x": b"3"}
    ProgramEdit("e", after).put_on(mirror)
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == theirs
    assert {path: (mirror / path).read_bytes() for path in after if path != "train.py"} == {
        path: data for path, data in after.items() if path != "train.py"
    }
    assert (mirror / "pkg" / "net.py").read_bytes() == TEXT
    assert os.access(mirror / "run.sh", os.X_OK)
    ProgramEdit("e", {"pkg/net.py": None, "pkg/new.py": None}).put_on(mirror)
    assert not (mirror / "pkg").exists()
    ProgramEdit("e", {"train.py": b"#!/bin/sh", "run.sh/x": b"x"}).put_on(mirror)  # a file for a folder, and round
    assert os.access(mirror / "train.py", os.X_OK)
    assert (mirror / "run.sh" / "x").read_bytes() == b"x"


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", ".git/config", "a\0b", ""])
def test_an_edit_reaches_nowhere_else(path: str) -> None:
    with pytest.raises(GobrrrError):
        ProgramEdit("e", {path: b""})


def test_an_edit_is_bounded(source: Path, tmp_path: Path) -> None:
    with pytest.raises(GobrrrError, match="at most"):
        ProgramEdit("e", {f"{number}.py": b"" for number in range(MOST_FILES + 1)})
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "huge").touch()
    os.truncate(copy / "huge", 300 << 20)
    with pytest.raises(GobrrrError, match="at most"):
        from_folder(copy, source)


def test_a_long_diff_is_cut_and_says_so(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "train.py").write_bytes(b"".join(b"new %d\n" % number for number in range(40_000)))
    (copy / "z.bin").write_bytes(b"\0")
    shown = from_folder(copy, source).diff
    assert len(shown) < 210_000
    assert shown.splitlines()[-1].startswith("... cut at 200 KB")
    (copy / "train.py").unlink()
    assert "Binary file z.bin differs" in from_folder(copy, source).diff


def test_a_diff_of_two_files_is_a_change_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("one\n")
    (tmp_path / "faster.py").write_text("two\n")
    patch = tmp_path / "faster.diff"
    patch.write_text("--- train.py\t2026-01-01\n+++ faster.py\t2026-01-02\n@@ -1 +1 @@\n-one\n+two\n")
    assert dict(from_patch(patch, tmp_path).files) == {"train.py": b"two\n"}


def test_a_diff_without_context_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "x.diff").write_text("--- a/train.py\n+++ b/train.py\n@@ -2 +2 @@\n-two\n+2\n")
    assert dict(from_patch(tmp_path / "x.diff", tmp_path).files) == {"train.py": b"one\n2\nthree\n"}


@pytest.mark.parametrize("variable", ["PYTHONPATH", "GOBRRR_WATCH", "A B"])
def test_a_receipt_sets_no_variable_that_an_edit_may_not(source: Path, variable: str) -> None:
    with pytest.raises(GobrrrError):
        told("a.diff", "", {variable: "x"}, None, source)


def test_a_receipts_line_that_looks_like_a_header_is_none(source: Path) -> None:
    lines = "--- a/train.py\n+++ b/train.py\n@@ -1,0 +2 @@\n+++ i\n"
    assert b"++ i" in (told("a.diff", lines, {}, None, source).files["train.py"] or b"")


def test_a_file_behind_a_linked_folder_is_removed_in_the_copy_alone(tmp_path: Path) -> None:
    """An arm's copy has links to the user's own folders."""
    own, mirror = tmp_path / "own", tmp_path / "mirror"
    (own / "pkg").mkdir(parents=True)
    mirror.mkdir()
    for name in ("a.py", "b.py"):
        (own / "pkg" / name).write_text("1\n")
    (mirror / "pkg").symlink_to(own / "pkg")
    ProgramEdit("a.diff", {"pkg/a.py": None}).put_on(mirror)
    assert [file.name for file in (mirror / "pkg").iterdir()] == ["b.py"] and (own / "pkg" / "a.py").is_file()


@pytest.mark.parametrize("word", ["order", "samples", "random"])
def test_what_lets_samples_come_otherwise_lets_the_order_change(word: str) -> None:
    edit = ProgramEdit("a.diff", {"a.py": b""})
    assert EditOnTrial(edit, frozenset({word})).safety == "order" and EditOnTrial(edit).safety == "tolerance"
