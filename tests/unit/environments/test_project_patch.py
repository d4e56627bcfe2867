"""Patches of what an agent changed: git itself applies them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.environments.project.patch import FileState, git_patch
from tests.support.git import git


def apply_patch(folder: Path, before: dict[str, FileState], after: dict[str, FileState]) -> None:
    """Write one state, apply the patch to the other, and compare."""
    folder.mkdir()
    git(folder, "init", "-q")
    for name, state in before.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if state.mode == "120000":
            path.symlink_to(state.content.decode())
        else:
            path.write_bytes(state.content)
            path.chmod(int(state.mode[-3:], 8))
    patch = folder.with_suffix(".patch")
    patch.write_text(git_patch(before, after), newline="")
    if patch.read_text():
        git(folder, "apply", str(patch))
    paths = [path for path in folder.rglob("*") if ".git" not in path.parts]
    assert after == {
        str(path.relative_to(folder)): (
            FileState(str(path.readlink()).encode(), "120000")
            if path.is_symlink()
            else FileState(path.read_bytes(), f"100{path.stat().st_mode & 0o777:o}")
        )
        for path in paths
        if path.is_symlink() or path.is_file()
    }


def test_all_that_can_happen_to_a_file(tmp_path: Path) -> None:
    before = {
        "changed": FileState(b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
        "deleted": FileState(b"x\n"),
        "mode": FileState(b"x\n"),
        "mode and content": FileState(b"x\n"),
        "link": FileState(b"changed", "120000"),
        "file for a link": FileState(b"x\n"),
        "no end": FileState(b"a\nb"),
        "emptied": FileState(b"x\n"),
        "same": FileState(b"x\n"),
    }
    after = {
        "changed": FileState(b"1\nb\n3\n4\n5\n6\n7\n8\n9\n10\n"),
        "created/in a folder": FileState(b"y\n"),
        "created empty": FileState(b""),
        "mode": FileState(b"x\n", "100755"),
        "mode and content": FileState(b"y\n", "100755"),
        "link": FileState(b"same", "120000"),
        "file for a link": FileState(b"same", "120000"),
        "no end": FileState(b"a\nc"),
        "emptied": FileState(b""),
        'quote" \\ and tab\t': FileState(b"z\n"),
        "ümlaut": FileState(b"z\n"),
        "same": FileState(b"x\n"),
    }
    apply_patch(tmp_path / "work", before, after)
    apply_patch(tmp_path / "back", after, before)


@pytest.mark.parametrize("content", [b"\0\1", b"caf\xe9\n"])
def test_binary_files_are_named(content: bytes) -> None:
    patch = git_patch({"a": FileState(b"\0")}, {"a": FileState(content)})
    assert patch == "diff --git a/a b/a\nBinary files a/a and b/a differ\n"
    assert git_patch({"a": FileState(b"a\n")}, {"a": FileState(content)}) == patch


def test_more_lines_than_a_diff_is_made_of(tmp_path: Path) -> None:
    lines = [f"{number}\n" for number in range(12_000)]
    others = [*lines[:10], *(f"x{line}" for line in lines[10:-10]), *lines[-10:]]
    before = {"a": FileState("".join(lines).encode())}
    after = {"a": FileState("".join(others).encode())}
    apply_patch(tmp_path / "work", before, after)


@pytest.mark.slow
@given(
    old=st.lists(st.sampled_from(["a", "b", "", "\r"]), max_size=12),
    new=st.lists(st.sampled_from(["a", "b", "", "\r"]), max_size=12),
    ends=st.tuples(st.booleans(), st.booleans()),
)
def test_any_two_texts(
    tmp_path_factory: pytest.TempPathFactory,
    old: list[str],
    new: list[str],
    ends: tuple[bool, bool],
) -> None:
    texts = ["\n".join(lines) + "\n" * end for lines, end in zip((old, new), ends, strict=True)]
    before, after = ({"f": FileState(text.encode())} for text in texts)
    apply_patch(tmp_path_factory.mktemp("any") / "work", before, after)
