"""What an agent leaves in a project, on both backends: what is read of it, and run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.environments.project.environment import ProjectEnvironment
from pytest_intercode.environments.project.fields import ProjectFields
from pytest_intercode.projects.copying import WORKDIR, copy_folder
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.files import bundled_folder
from tests.support import puzzles

provider = puzzles.provider  # fixture: of each backend

Start = Callable[[], ProjectEnvironment]


@pytest.fixture
def start(provider: SandboxProvider, tmp_path: Path) -> Iterator[Start]:
    """Return a factory of episodes that have begun, in a copy of a small project."""
    project = tmp_path / "project"
    (project / "legacy/deep").mkdir(parents=True)
    (project / "legacy/a.txt").write_text("a\n")
    (project / "legacy/deep/b.txt").write_text("b\n")
    (project / "setup.cfg").write_text("[x]\n")
    (project / "link").symlink_to("setup.cfg")
    copy = copy_folder(project)
    environments: list[ProjectEnvironment] = []

    def begin() -> ProjectEnvironment:
        environment = ProjectEnvironment(provider)
        environments.append(environment)
        image = ImageSource(bundled_folder("dockerfiles") / "bash.Dockerfile", layers=(copy.layer,))
        task = Task(
            *("t", "Do it.", (), "project", "s", ""),
            image=image,
            workdir=WORKDIR,
            fields=ProjectFields(copy.commit),
        )
        environment.reset(task=task)
        return environment

    yield begin
    for environment in environments:
        environment.close()


def test_files_patch_and_commits(start: Start) -> None:
    environment = start()
    assert environment.step("git status --porcelain; git diff-index HEAD; pwd")[0] == "/project\n"
    for action in (
        "echo new >created.txt; echo more >>setup.cfg; touch legacy/../kept; rm kept",
        "git add created.txt; git commit -qm 'Add it' -m 'With a body.'",
        "rm -rf legacy; rm link; mkdir link; echo x >link/inside; echo o >/outside",
    ):
        assert environment.step(action)[0].status == 0
    environment.submit("Done: I added it.")
    state = environment.state
    assert state.created == ("created.txt", "link/inside")
    assert state.changed == ("setup.cfg",)
    assert state.deleted == ("legacy/a.txt", "legacy/deep/b.txt", "link")
    assert [commit.subject for commit in state.commits] == ["Add it"]
    assert state.commits[0].message == "Add it\n\nWith a body."
    assert state.commits[0].author == "Agent <agent@localhost>"
    assert "@@ -1 +1,2 @@\n [x]\n+more\n" in state.patch
    assert "deleted file mode 120000\n" in state.patch
    assert environment.end_state()["message"] == "Done: I added it."
    assert environment.read("created.txt") == environment.read("/project/created.txt") == b"new\n"
    with pytest.raises(FileNotFoundError):
        environment.read("legacy/a.txt")


def test_a_command_on_what_was_left(start: Start) -> None:
    environment = start()
    environment.step("echo 'exit 3' >check.sh; rm -rf legacy; (sleep 1000 &) ; echo x >setup.cfg")
    environment.submit()
    result = environment.check("cat setup.cfg; ls; pgrep sleep; touch later; sh check.sh", 20)
    assert (result.status, result.output) == (3, "x\ncheck.sh\nlink\nsetup.cfg\n")
    with pytest.raises(FileNotFoundError):  # it was another sandbox
        environment.read("later")


def test_an_agent_that_leaves_too_much(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.environments.project.environment._MAX_PATCH_FILES", 3)
    environment = start()
    environment.step("touch 1 2 3 4; rm -rf .git; ln -s / .git")
    environment.submit()
    assert environment.state.created == ("1", "2", "3", "4")
    assert environment.state.patch == "# 4 files were changed: too many for a patch\n"
    assert environment.state.commits == ()
