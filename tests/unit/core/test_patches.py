"""Patches: read as git reads them, turned around, and refused where they are no good."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.core import patches
from pytest_intercode.core.patches import PatchError, read_patch, reverse_patch

_EDIT = """\
diff --git a/src/a.py b/src/a.py
index 1111111..2222222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,3 @@ def f():
 one
-two
+TWO
 three
"""


def _git(folder: Path, *words: str, given: str = "") -> str:
    command = ["git", "-c", "core.autocrlf=false", "-C", str(folder), *words]
    done = subprocess.run(
        command, input=given.encode("utf-8", "surrogateescape"), capture_output=True, check=True
    )
    return done.stdout.decode("utf-8", "surrogateescape")


def test_every_kind_of_change_and_its_reverse(tmp_path: Path) -> None:
    repository = tmp_path / "r"
    _git(tmp_path, "init", "-q", "-b", "main", str(repository))
    names = ["edit.txt", "gone", "mode.sh", "old name", 'qu"ote\\d ä\t.txt', "dos.txt", "end"]
    for number, name in enumerate(names):
        text = "".join(f"line {line} of {number}\n" for line in range(30))
        (repository / name).write_bytes(text.encode())
    (repository / "dos.txt").write_bytes(b"a\r\nb\r\nc\r\n")
    (repository / "end").write_bytes(b"a\nb")
    _git(repository, "add", "-A")
    before = _git(repository, "write-tree").strip()

    edited = repository / "edit.txt"
    edited.write_text(edited.read_text().replace("line 3 ", "LINE 3 ").replace("line 25 ", ""))
    (repository / "gone").unlink()
    (repository / "mode.sh").chmod(0o755)
    (repository / "old name").rename(repository / "new name")
    (repository / 'qu"ote\\d ä\t.txt').write_text("else\n")
    (repository / "dos.txt").write_bytes(b"a\r\nB\r\nc\r\n")
    (repository / "end").write_bytes(b"a\nB\nc\n")
    (repository / "sub").mkdir()
    (repository / "sub/created").write_bytes(b"no end")
    (repository / "sub/empty").touch()
    (repository / "sub/link").symlink_to("../end")
    _git(repository, "add", "-A")
    after = _git(repository, "write-tree").strip()

    text = _git(repository, "diff-tree", "-p", "-M", before, after)
    changes = {change.path: change for change in read_patch(text)}
    assert set(changes) == {
        *("edit.txt", "gone", "mode.sh", "new name", 'qu"ote\\d ä\t.txt', "dos.txt", "end"),
        *("sub/created", "sub/empty", "sub/link"),
    }
    assert len(changes["edit.txt"].hunks) == 2
    assert changes["gone"].new is None
    assert changes["sub/empty"].old is None
    assert (changes["mode.sh"].old_mode, changes["mode.sh"].new_mode) == ("100644", "100755")
    assert (changes["new name"].old, changes["new name"].moved) == ("old name", "rename")
    assert changes["dos.txt"].hunks[0].lines[2] == "+B\r"

    _git(repository, "apply", "--cached", "-", given=reverse_patch(read_patch(text)))
    assert _git(repository, "write-tree").strip() == before
    _git(repository, "apply", "--cached", "-", given=text)
    assert _git(repository, "write-tree").strip() == after


_LINES = st.lists(
    st.sampled_from(["a", "b", "c\r", "", "-", "+x", "\\ y", "@@ -1 +1 @@"]), max_size=9
)


@given(_LINES, _LINES, st.booleans(), st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_reverse_is_what_git_makes(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[str],
    after: list[str],
    first_ends: bool,
    second_ends: bool,
) -> None:
    folder = tmp_path_factory.mktemp("pair")
    for name, lines, ends in (("x", before, first_ends), ("y", after, second_ends)):
        text = "\n".join(lines) + ("\n" if ends else "")
        (folder / name).write_bytes(text.encode())
    command = ["git", "-c", "core.autocrlf=false", "diff", "--no-index", "x", "y"]
    text = subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout.decode()
    text = text.replace("b/y", "b/x")
    back = reverse_patch(read_patch(text))
    (folder / "x").write_bytes((folder / "y").read_bytes())
    if text:
        _git(folder, "apply", "-", given=back)
        text = "\n".join(before) + ("\n" if first_ends else "")
        assert (folder / "x").read_bytes() == text.encode()


def test_what_is_between_changes_does_not_matter() -> None:
    mail = f"From 1234\nSubject: [PATCH] x\n---\n src/a.py | 2 +-\n\n{_EDIT}-- \n2.39.2\n"
    assert [change.path for change in read_patch(mail)] == ["src/a.py"]
    assert read_patch("\n") == ()
    plain = _EDIT[_EDIT.index("---") :]
    assert read_patch(plain)[0].old == "src/a.py"


def test_blank_lines_that_lost_their_blank() -> None:
    text = _EDIT.replace(" one\n", "\n")
    assert read_patch(text)[0].hunks[0].lines[0] == " "


def _created(path: str, mode: str = "100644", line: str = "x") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{line}\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "not a patch in git's format"),
        (_EDIT.replace("-1,3 ", "-1,4 "), "src/a.py: hunk 1 (line 5 of the patch): says 4 lines"),
        (_EDIT.replace(" three\n", ""), "says 3 lines before and 3 after, but has 2 and 2"),
        (_EDIT + "@@ -9,1 +9,1 @@\n-a\n", "src/a.py: hunk 2 (line 10 of the patch): says 1"),
        (_EDIT + "@@ nonsense\n@@ -x +1 @@\n", "line 11: a hunk before any file"),
        (
            _EDIT.replace("@@ -1,3 +1,3 @@", "@@ -1,3 +1,z @@"),
            "hunk 1 (line 5 of the patch): is not",
        ),
        (_created("../a"), "'../a': leads out of the repository"),
        (_created("a/../../b"), "leads out of the repository"),
        (_created("/etc/passwd"), "'/etc/passwd': is an absolute path"),
        (_created("a//b"), "is not a path that git has"),
        (_created(".git/hooks/pre-commit"), "is in git's own folder"),
        (_created("a/.GIT/config"), "is in git's own folder"),
        (_created("a", "160000", "Subproject commit 1234"), "a: is a submodule"),
        (_created("a", "100777"), "the mode '100777' is not one of git's"),
        (_created("a/b", "120000", "/etc/passwd"), "symbolic link that leads out"),
        (_created("a/b", "120000", "../../x"), "symbolic link that leads out"),
        (
            "diff --git a/a b/a\nindex 1..2 100644\nBinary files a/a and b/a differ\n",
            "a: is binary, and its content is not in the patch",
        ),
        ("diff --git a/x b/y\n", "its header does not say which file it is about"),
        ('diff --git "a/\\q" "b/\\q"\nold mode 100644\nnew mode 100755\n', "an escape"),
        ("--- a/x\n+++ b/x\n", "x: has no hunk"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "names of the file are missing"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(PatchError) as raised:
        read_patch(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "MAX_PATCH_LENGTH", 1000)
    with pytest.raises(PatchError, match="at most 0 are read"):
        read_patch(_EDIT * 100)
    monkeypatch.undo()
    monkeypatch.setattr(patches, "_MAX_FILES", 3)
    with pytest.raises(PatchError, match="more than 3 files"):
        read_patch(_EDIT * 4)


@given(st.lists(st.sampled_from([*_EDIT.splitlines(), "new file mode 1", '"', "\\ x", "+", "- "])))
@settings(max_examples=60, deadline=None)
def test_garbage_is_read_or_refused(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        changes = read_patch(text)
    except PatchError:
        return
    assert all(change.path for change in changes)


def test_what_cannot_be_turned_around() -> None:
    binary = (
        "diff --git a/a b/a\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIc${MZ\n\n"
        "literal 0\nHcmV?d00001\n\n"
    )
    change = read_patch(binary)
    assert change[0].binary is not None
    with pytest.raises(PatchError, match="cannot be reversed"):
        reverse_patch(change)
