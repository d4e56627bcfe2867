"""``pytest-intercode init`` in repositories; pytest collects what it writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_intercode.cli import main

WRITTEN = ("tests/agents/test_rules.py", ".github/workflows/agents.yml", "pytest.ini")


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Path:
    """A git repository with rules for agents, which is the working directory."""
    subprocess.run(["git", "init", "--quiet"], check=True)
    Path("AGENTS.md").write_text("Run the tests with `make test`.\n")
    return pytester.path


def _files(folder: Path) -> list[str]:
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in paths if not path.startswith(".git/"))


def test_it_writes_what_pytest_collects(
    repository: Path, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "src").mkdir()
    os.chdir(repository / "src")  # the repository is found from a folder in it
    assert main(["init"]) == 0
    os.chdir(repository)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "repository: AGENTS.md (tests run with `make test`)"
    assert lines[1].startswith("agents: ")
    assert lines[2].startswith("sandboxes: ")
    assert lines[3:6] == [f"written: {name}" for name in WRITTEN]
    assert lines[6] == "next:"
    assert lines[7] == "  in pytest.ini, write the name of a model in place of each MODEL"
    assert lines[8].startswith("  pytest tests/agents --intercode-record=missing ")
    assert _files(repository) == sorted([*WRITTEN, "AGENTS.md"])
    result = pytester.runpytest_inprocess("tests/agents", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["tests/agents/test_rules.py::test_runs_the_tests_as_agents_md_*"])
    assert result.ret == 0
    result = pytester.runpytest_inprocess("tests/agents")
    result.stdout.fnmatch_lines(["--intercode-agent=*: MODEL is a placeholder; *"])


def test_a_repository_whose_name_is_not_utf_8(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    os.chdir(folder)
    assert main(["init"]) == 0
    assert _files(folder) == sorted(WRITTEN)


def test_it_never_overwrites(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    for name in WRITTEN[:2]:
        (repository / name).write_text("mine")
    options = (repository / "pytest.ini").read_text()
    capsys.readouterr()
    assert main(["init"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:6] == [
        "left alone: tests/agents/test_rules.py already exists",
        "left alone: .github/workflows/agents.yml already exists",
        "left alone: pytest.ini: it already has intercode_agent",
    ]
    assert [(repository / name).read_text() for name in WRITTEN] == ["mine", "mine", options]


def test_a_dry_run_writes_nothing(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert 'would write tests/agents/test_rules.py:\n    """Do agents do ' in text
    assert '        assert run.ran("make test")\n' in text
    assert "would write pytest.ini:\n    [pytest]\n    intercode_agent = " in text
    assert _files(repository) == ["AGENTS.md"]


def test_links_out_of_the_repository(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file that would be written elsewhere is left alone, also where nothing is there yet."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (repository / "tests/agents").mkdir(parents=True)
    (repository / "tests/agents/test_rules.py").symlink_to(elsewhere / "x.py")
    (repository / ".github").symlink_to(elsewhere)
    assert main(["init"]) == 1
    assert list(elsewhere.iterdir()) == []


def test_no_repository(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(pytester.path.parent))
    assert main(["init"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"init: {pytester.path} is not in a git repository (" in line
    monkeypatch.setenv("PATH", "")
    assert main(["init"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "init: git cannot be run: " in line


def test_a_folder_that_cannot_be_written(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "tests").write_text("a file in the place of a folder")
    assert main(["init"]) == 1
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert "tests/agents/test_rules.py" in line
    assert "written: pytest.ini" in output.out
    assert "next:" not in output.out
