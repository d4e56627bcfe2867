"""Which files of a project an agent has read."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.core.turn import Turn
from pytest_intercode.projects.read_files import digests_of_layer, find_read_files
from tests.support.thinning import ALL

ALWAYS = {
    *("AGENTS.md", "docs/AGENTS.md", ".claude/skills/x/run.py", "tools/skill/SKILL.md"),
    *(".clinerules/a.md", ".kimi-code/agents/b.md"),
}
FILES = {
    name: name
    for name in (
        *sorted(ALWAYS),
        *("README.md", "src/a.py", "src/b.py", "tests/a.py", "my file.txt", "pyproject.toml"),
        *("docs/deep/my file.md", "a=b.txt", "app/[slug]/page.tsx", "app/page.tsx", "my dir/c.sh"),
    )
}


@pytest.mark.parametrize(
    ("action", "observation", "read"),
    [
        ("ls -R", "README.md\nsrc/a.py\n", set()),  # names say nothing of contents
        ("cat README.md", "", {"README.md"}),
        ("cat /project/src/a.py", "", {"src/a.py"}),
        ("cd src && cat a.py", "", {"src/a.py", "tests/a.py"}),
        ("sed -n '1,5p' ./src/b.py|head", "", {"src/b.py"}),
        ('Read({"file_path": "/project/pyproject.toml"})', "", {"pyproject.toml"}),
        ("grep -rn import", "src/a.py:3:import x\nsrc/b.py:no line", {"src/a.py"}),
        ("python -c \"open('README.md')\"", "", {"README.md"}),
        ("cat READ", "", set()),
        ("cd src; cat ../README.md", "", {"README.md"}),
        ("cat ../../src/../src/a.py", "", {"src/a.py"}),
        ("cat docs/../README.md", "", {"README.md"}),
        ("cat src//b.py ././pyproject.toml", "", {"src/b.py", "pyproject.toml"}),
        ("cat $PWD/README.md", "", {"README.md"}),
        ('cat "${HOME}/../project/README.md"', "", {"README.md"}),
        ("cd /; cat project/src/b.py", "", {"src/b.py"}),
        ("cp -r . /tmp/copy; cat /tmp/copy/src/a.py", "", {"src/a.py"}),
        ("cat other/src/c.py", "", set()),
        ("cat README.*", "", {"README.md"}),
        ("cat /project/s?c/*.py", "", {"src/a.py", "src/b.py"}),
        ("cat src/$NAME.py", "", {"src/a.py", "src/b.py"}),
        ("cat **/a.p?", "", {"src/a.py", "tests/a.py"}),
        ("cat $FILE; echo $((2 * 3)) /* x */ **", "", set()),
        ("cat *****************************a.py", "", {"src/a.py", "tests/a.py"}),
        ("cat 'my file.txt'", "", {"my file.txt"}),
        ("cat docs/deep/my\\ file.md", "", {"docs/deep/my file.md"}),
        ("cd docs/deep; cat my*", "", {"my file.txt", "docs/deep/my file.md"}),
        ("cat a=b.txt", "", {"a=b.txt"}),
        ("cat a\\=b.txt", "", {"a=b.txt"}),
        ("cat 'my dir/c.sh'", "", {"my dir/c.sh"}),
        ("cd 'my dir'; ./c.sh", "", {"my dir/c.sh"}),
        ("cat 'app/[slug]/page.tsx'", "", {"app/[slug]/page.tsx", "app/page.tsx"}),
        ('Bash({"command": "cat src/b.py\\ncat README.md\\n"})', "", {"src/b.py", "README.md"}),
        ("grep -rn x", "../my file.txt:3:x\n./src/b.py:4-x\n*:5:x", {"my file.txt", "src/b.py"}),
    ],
)
def test_calls_name_what_is_read(action: str, observation: str, read: set[str]) -> None:
    turns = [Turn(action, observation, True)]
    assert find_read_files(turns, FILES) == {name: name for name in sorted(ALWAYS | read)}


@pytest.mark.parametrize(
    "make_word",
    [
        lambda number: f"a{number}*b{number}*c",
        lambda number: f"f*{number}",
        lambda number: f"{'*a' * 50}{number}",
        lambda number: f"x{number}/{'a/' * 50}f1",
        lambda number: f"./{'*/' * 50}{number}",
        lambda number: f"{number}/__init__.py",
        lambda number: f"$X{number}/../__init__.py",
        lambda number: f"{number}=:1:1",
    ],
)
@pytest.mark.timeout(60)
def test_what_takes_long_to_compare(make_word: Callable[[int], str]) -> None:
    """Text that is made for it, and a project of ten thousand files: some seconds, not hours."""
    names = ("__init__.py", "f", "a=b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    files = {
        f"{n % 100}/{n}/{names[n % 4]}{n % 5 and n}": "" for n in range(10_000 if ALL else 1_000)
    }
    text = " ".join(map(make_word, range(30_000 if ALL else 3_000)))
    assert set(find_read_files([Turn(text, text, True)], files)) <= set(files)


def test_too_much_to_compare_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn("cat x*", "", True)
    assert set(find_read_files([turn], FILES)) == ALWAYS
    monkeypatch.setattr("pytest_intercode.projects.read_files._MAX_COMPARISONS", 3)
    assert set(find_read_files([turn], FILES)) == set(FILES)
    monkeypatch.undo()
    monkeypatch.setattr("pytest_intercode.projects.read_files._MAX_SEARCHED", 3)
    assert {"a=b.txt", "my file.txt"} <= set(find_read_files([turn], FILES))
    assert "README.md" not in find_read_files([turn], FILES)


def test_the_digests_of_a_copy(tmp_path: Path) -> None:
    def pack(name: str, content: bytes, mode: int = 0o644) -> dict[str, str]:
        path = tmp_path / name
        with tarfile.open(path, "w") as archive:
            for member, data in (("a", content), (".git/HEAD", b"x")):
                info = tarfile.TarInfo(f"project/{member}")
                info.size, info.mode = len(data), mode
                archive.addfile(info, io.BytesIO(data))
            link = tarfile.TarInfo("project/link")
            link.type, link.linkname = tarfile.SYMTYPE, "a"
            archive.addfile(link)
        return dict(digests_of_layer(path))

    first = pack("1.tar", b"1")
    assert list(first) == ["a", "link"]
    assert pack("2.tar", b"1") == first
    assert pack("3.tar", b"2")["a"] != first["a"]
    assert pack("4.tar", b"1", 0o755)["a"] != first["a"]
