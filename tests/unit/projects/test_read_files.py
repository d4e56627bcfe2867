"""Which files of a project an agent has read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pytest_intercode.core.turn import Turn
from pytest_intercode.projects.read_files import digests_of_layer, find_read_files

ALWAYS = {
    *("AGENTS.md", "docs/AGENTS.md", ".claude/skills/x/run.py", "tools/skill/SKILL.md"),
    *(".clinerules/a.md", ".kimi-code/agents/b.md"),
}
FILES = {
    name: name
    for name in (
        *sorted(ALWAYS),
        *("README.md", "src/a.py", "src/b.py", "tests/a.py", "my file.txt", "pyproject.toml"),
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
    ],
)
def test_calls_name_what_is_read(action: str, observation: str, read: set[str]) -> None:
    turns = [Turn(action, observation, True)]
    assert find_read_files(turns, FILES) == {name: name for name in sorted(ALWAYS | read)}


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
