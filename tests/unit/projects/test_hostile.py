"""What agents, and recordings of strangers, send to exhaust the process of the test."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pytest_intercode.core.call import ShimCall
from pytest_intercode.core.turn import Turn
from pytest_intercode.environments.mcp_servers import _find_problem
from pytest_intercode.environments.project.environment import ProjectState
from pytest_intercode.environments.project.patch import FileState, git_patch
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects import recording_file
from pytest_intercode.projects.copying import copy_folder, copy_project
from pytest_intercode.projects.paths import ChangedPaths
from pytest_intercode.projects.recordings import _check_state
from pytest_intercode.projects.shell import MAX_TEXT, parse_shell
from pytest_intercode.projects.shims import _CallLog
from pytest_intercode.projects.tool_calls import ToolCalls
from tests.attacks import hostile_files


@pytest.mark.parametrize("text", ["a|", ")(", "a | b) "])
def test_a_text_that_the_parser_would_need_gigabytes_or_minutes_for(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shell = parse_shell(f"first\n{text * (MAX_TEXT // len(text))}")
    assert shell.commands == () or shell.commands[0].words == ("first",)
    assert not shell.complete
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # KiB


def test_a_patch_of_many_equal_lines() -> None:
    """Lines that are all equal would be compared each with each."""
    old, new = b"x\n" + b"\n" * 4000 + b"y\n", b"z\n" + b"\n" * 4900
    patch = git_patch({"a": FileState(old)}, {"a": FileState(new)})
    assert patch.count("\n-") == 4003  # with the heads of the file
    assert patch.count("\n+") == 4902


def test_calls_with_a_great_many_empty_words() -> None:
    log = _CallLog()
    call = ShimCall("gh", ("",) * 65_000, "/")
    numbers = [log.begin(call) for _ in range(100)]
    assert numbers[:10] == list(range(10))
    assert numbers[-1] is None


def test_arguments_in_each_other() -> None:
    deep = "[" * 900 + "]" * 900
    calls = ToolCalls([Turn(f'make({{"tree": {deep}}})', "", None, tool="make")])
    assert "make(tree=[[[" in calls.called("other").explanation


def test_a_server_whose_answer_is_nested_without_end() -> None:
    assert "which is not an answer" in _find_problem(f"line 0\n{'[' * 200_000}\n")


def test_a_name_that_forges_a_line() -> None:
    created = ChangedPaths.of("created", ProjectState(created=("a\n::error::x",)))
    assert "\n::error" not in created("b").explanation


def test_a_recording_whose_requests_are_a_bomb(tmp_path: Path) -> None:
    """A part is in the file once, and may be in a request any number of times."""
    path = tmp_path / "x.jsonl.gz"
    hostile_files.FILES["recording-bomb"](path)
    assert path.stat().st_size < 20_000
    with pytest.raises(ConfigurationError, match="its requests have more than 512 MiB"):
        recording_file.read_file(path)


@pytest.mark.parametrize(
    "state",
    [
        {"project": 1},
        {"project": {"commits": 5}},
        {"project": {"commits": [{"id": 1}]}},
        {"project": {"created": 7}},
    ],
)
def test_a_recording_whose_state_is_none(state: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        _check_state(state)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of a project in a project."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "root/example").mkdir(parents=True)
    (tmp_path / "root/example/a.txt").write_text("a")
    (tmp_path / "host").mkdir()
    (tmp_path / "host/key").write_text("OF-THE-HOST")
    return tmp_path / "root/example"


def test_links_that_lead_out_of_the_project(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "link").symlink_to(tmp_path / "host")
    with pytest.raises(ConfigurationError, match=r"^treatment .*/link: a link leads out of"):
        copy_project("example", root, root, [root / "link"])
    with pytest.raises(ConfigurationError, match=r"^project .*/link: a link leads out of"):
        copy_project("link", root, root)
    copy_project(tmp_path / "host", root, root)  # a test may name it


@pytest.mark.parametrize("name", [".git/config", "sub/.git/hooks/post-commit", ".GIT/config"])
def test_a_treatment_with_settings_of_git(project: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "treatment" / name
    path.parent.mkdir(parents=True)
    path.write_text('[core]\nfsmonitor = "touch /tmp/x"\n')
    with pytest.raises(ConfigurationError, match="a treatment cannot contain a repository"):
        copy_folder(project, [tmp_path / "treatment"])


def test_a_folder_that_is_a_repository_with_a_program_in_its_settings(tmp_path: Path) -> None:
    """Git tracks such a folder, so a pull request may bring it along."""
    folder, proof = tmp_path / "bare", tmp_path / "ran"
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(
        f'[core]\nrepositoryformatversion = 0\nworktree = .\nfsmonitor = "touch {proof}; false"\n'
    )
    try:
        copy_folder(folder)
    except ConfigurationError:
        pass
    assert not proof.exists()
