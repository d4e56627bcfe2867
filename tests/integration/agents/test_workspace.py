"""A copy of the task's directory on this machine: what changes on each side, and what may not."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.agents.workspace import Workspace, Workspaces
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import Budget
from pytest_intercode.errors import AgentLoadError, BudgetExhausted
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support import puzzles, rollouts

provider = puzzles.provider  # fixture: of each backend
quick_provider = puzzles.quick_provider

Run = Callable[[Path, Workspace, Callable[[str], str]], object]


def play(provider: SandboxProvider, run: Run, kept: Path, **fields: Any) -> EpisodeRecord:
    """Play an agent that changes files here, in the workspace, and there, by actions."""
    workspaces = Workspaces(str(kept), kept)

    def agent(env: AgentEnvironment) -> None:
        workspace = workspaces.open(env.task, env)
        assert workspace is not None

        def there(command: str) -> str:
            workspace.push()
            said = env.exec(command).output
            workspace.pull()
            return said

        run(workspace.folder, workspace, there)
        workspace.push_last()

    return play_agent(provider, Agent("loop", run=lambda _, env: agent(env)), **fields)


def play_agent(provider: SandboxProvider, agent: Agent, **fields: Any) -> EpisodeRecord:
    spec = {name: fields.pop(name) for name in ("budget",) if name in fields}
    task = task_of(**fields)
    services = Services(provider, make_agent=lambda _: agent)
    return rollouts.play(Rollout(RolloutSpec(task, agent="mine", timeout=30, **spec), services))


def task_of(**fields: Any) -> Task:
    fields = {"env": "bash", "gold": ("echo x >x",), "workdir": "/w", **fields}
    return Task(id="t", query="Do.", suite="s", dataset="s", **fields)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


SETUP = (
    "mkdir -p src/deep old; echo one >src/a.py; echo two >src/deep/b.py; chmod 640 src/deep/b.py; "
    "ln -s a.py src/link; ln -s /etc/passwd out; ln -s ../../etc also-out; mkfifo pipe; "
    "echo o >old/o; ln src/a.py hard; printf 'n\\nl' >$'new\\nline'",
)


def test_what_changes_on_one_side_changes_on_the_other(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def run(here: Path, workspace: Workspace, there: Callable[[str], str]) -> None:
        seen.append(names(here))
        assert (here / "hard").read_text() == "one\n"
        assert (here / "src/deep/b.py").stat().st_mode & 0o777 == 0o640
        (here / "src/deep/b.py").write_text("TWO\n")
        (here / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (here / "run.sh").chmod(0o755)
        shutil.rmtree(here / "old")
        (here / "to-run").symlink_to("run.sh")
        os.mkfifo(here / "mine")
        seen.append(there("cat src/deep/b.py; stat -c %a src/deep/b.py; ./to-run; ls -d old mine"))
        # Renamed folders hold what is as old as before, and a swap leaves all names.
        there(
            "mv src source; echo made >source/deep/c; rm hard; mkdir p q; echo p >p/x; echo q >q/x"
        )
        assert names(here / "source") == ["a.py", "deep", "deep/b.py", "deep/c", "link"]
        assert (here / "source/deep/b.py").read_text() == "TWO\n"
        assert not (here / "src").exists()
        assert not (here / "hard").exists()
        there("mv p r; mv q p; mv r q; chmod 700 p")
        assert (here / "p/x").read_text() + (here / "q/x").read_text() == "q\np\n"
        assert (here / "p").stat().st_mode & 0o777 == 0o700
        # What both have changed stays as the program has it.
        (here / "p/x").write_text("mine\n")
        as_by_a_job_in_the_background = b"\0" * 1024, [b"q"]
        workspace._act(lambda shell: shell.apply_changes(*as_by_a_job_in_the_background))
        workspace.pull()
        assert not (here / "q").exists()
        assert there("cat p/x") == "mine\n"
        assert there("rm -r p; ls -d p 2>&1").endswith("No such file or directory\n")
        assert not (here / "p").exists()
        (here / "source").rename(here / "src")
        (here / "x").write_text("x\n")

    gold = (
        "echo TWO >src/deep/b.py; rm -r old hard; echo made >src/deep/c; echo x >x; "
        "printf '#!/bin/sh\\necho ran\\n' >run.sh; chmod 755 run.sh; ln -s run.sh to-run",
    )
    record = play(provider, run, tmp_path, setup=SETUP, gold=gold)
    assert record.outcome == "solved", record.reason
    first, second = seen
    assert first == [
        *("hard", "new\nline", "old", "old/o", "src", "src/a.py", "src/deep", "src/deep/b.py"),
        "src/link",
    ]
    assert second.splitlines()[:3] == ["TWO", "640", "ran"]
    assert "old" in second.splitlines()[3]
    assert "[workspace: changed run.sh, src/deep/b.py, to-run; removed old, old/o]" in record.log
    assert "TWO" not in record.log.replace("TWO\n640", "")  # names alone, but for the command's


def test_the_rights_are_the_tasks_users(provider: SandboxProvider, tmp_path: Path) -> None:
    def run(here: Path, workspace: Workspace, there: Callable[[str], str]) -> None:
        assert names(here) == ["given", "roots", "roots/own"]  # a secret may not be read
        (here / "given").write_text("changed\n")
        (here / "own").write_text("own\n")
        assert there("stat -c %U own; cat given") == "nobody\nchanged\n"
        (here / "roots" / "own").write_text("mine\n")
        workspace.push()

    setup = (
        "chmod 777 .; echo g >given; chmod 666 given; echo s >secret; chmod 600 secret; "
        "mkdir -m 755 roots; echo r >roots/own; chmod 644 roots/own",
    )
    there = {"user": "nobody", "workdir": "/tmp/w", "setup": setup}
    record = play(provider, run, tmp_path, **there)
    assert record.outcome == "agent-error"
    assert record.reason.startswith("changes in /tmp/w: "), record.reason
    assert "./roots/own" in record.reason


def test_without_gnus_tools_all_is_carried(quick_provider: SandboxProvider, tmp_path: Path) -> None:
    def run(here: Path, workspace: Workspace, there: Callable[[str], str]) -> None:
        (here / "a").write_text("2\n")
        assert there("cat a; rm b; echo c >c") == "2\n"
        assert names(here) == ["a", "c"]

    # It prints no version, and does the rest.
    tar = '#!/bin/bash\\n[[ $1 == --version ]] && exit 1\\nexec /usr/bin/tar "$@"\\n'
    setup = (
        f"printf '{tar}' >/usr/local/bin/tar; chmod 755 /usr/local/bin/tar; echo 1 >a; echo >b",
    )
    record = play(quick_provider, run, tmp_path, setup=setup, gold=("echo 2 >a; rm b; echo c >c",))
    assert record.outcome == "solved", record.reason


def test_what_git_would_run_stays_in_the_sandbox(
    quick_provider: SandboxProvider, tmp_path: Path
) -> None:
    def run(here: Path, workspace: Workspace, there: Callable[[str], str]) -> None:
        assert "bare = false" in (here / ".git/config").read_text()
        there(
            "git config core.fsmonitor 'touch /tmp/ran'; git branch other; mkdir -p new/.git/hooks;"
            "echo evil >.git/hooks/post-checkout; echo evil >new/.git/hooks/pre-commit; "
            "echo evil >new/.git/config; mkdir sub; echo 'gitdir: ../new' >sub/.git; "
            "mv .git .tig; mkdir y; mv y .git; mv .git/../.tig/* .git"
        )
        assert "fsmonitor" not in (here / ".git/config").read_text()
        found = names(here)
        assert ".git/refs/heads/other" in found
        assert "sub" in found
        assert not {"sub/.git", "new/.git/config", "new/.git/hooks/pre-commit"} & {*found}
        assert ".git/hooks/post-checkout" not in found
        assert there("git config core.fsmonitor") == "touch /tmp/ran\n"  # nor was it lost there
        there(
            "git clone -q --bare .git b/are; git -C b/are config core.fsmonitor 'touch /tmp/ran'; "
            "git branch third; mkdir -p c/.GIT/hooks; echo evil >c/.GIT/hooks/post-merge"
        )
        found = names(here)
        assert "b/are/refs" in found
        assert ".git/refs/heads/third" in found
        assert not {"b/are/HEAD", "c/.GIT/hooks/post-merge"} & {*found}  # it is no repository here
        there("rm -rf .git new sub y .tig b c; echo x >x")

    setup = (
        "git init -qb main . && git -c user.name=a -c user.email=a@b commit -qm a --allow-empty",
    )
    record = play(quick_provider, run, tmp_path, setup=setup, gold=("rm -rf .git; echo x >x",))
    assert record.outcome == "solved", record.reason


def test_what_was_done_when_a_budget_is_used_up_counts(
    quick_provider: SandboxProvider, tmp_path: Path
) -> None:
    workspaces = Workspaces("yes", tmp_path)
    folders: list[Path] = []

    def run(env: AgentEnvironment) -> None:
        workspace = workspaces.open(env.task, env)
        assert workspace is not None
        folders.append(workspace.folder)
        (workspace.folder / "x").write_text("x\n")
        with pytest.raises(BudgetExhausted):
            env.spend(input_tokens=10, output_tokens=1)
        workspace.push_last()
        (workspace.folder / "y").write_text("y\n")
        env.submit() if not env.over else None
        workspace.close()

    agent = Agent("loop", run=lambda _, env: run(env))
    record = play_agent(quick_provider, agent, budget=Budget(tokens=10))
    assert record.outcome == "solved", record.reason
    assert not folders[0].exists()
    workspaces.close()
    record = play(quick_provider, lambda *_: None, tmp_path, workdir="/")
    assert record.outcome == "agent-error"
    assert record.reason.startswith("workspace=...: the task's directory is the whole sandbox (/)")


PROGRAM = """\
import json, os, sys
task = json.loads(sys.stdin.readline())
assert task["arguments"] == {"mood": "fine"}, task
assert os.getcwd() == os.environ["INTERCODE_WORKSPACE"]
text = open("given").read()
open("given", "w").write(text.upper())
print(json.dumps({"action": "cat given; echo there >made"}), flush=True)
seen = json.loads(sys.stdin.readline())["observation"]
open("x", "w").write(seen + open("made").read())
"""


def test_a_program_edits_its_files_here(quick_provider: SandboxProvider, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    line = shlex.join([sys.executable, str(tmp_path / "program.py")])
    arguments = {"workspace": "yes", "mood": "fine"}
    factory = load_agent(f"command:{line}", arguments, tmp_path)
    gold = "echo HI >given; echo there >made; cat given made >x"
    record = play_factory(quick_provider, factory, gold)
    assert record.outcome == "solved", (record.reason, record.log)
    assert record.turns[0].observation == "HI\n"
    assert "[workspace: changed given]" in record.turns[0].log
    assert "[workspace: changed x]" in record.log


@pytest.mark.slow
def test_a_program_of_mcp_edits_its_files_here(
    quick_provider: SandboxProvider, tmp_path: Path
) -> None:
    pytest.importorskip("mcp")
    client = Path(__file__).parents[3] / "examples" / "mcp_client.py"
    kept = tmp_path / "kept"
    kept.mkdir()
    script = (
        f"tr a-z A-Z <given >new; mv new given; {sys.executable} {client} {{config}} "
        "'cat given; echo there >made' && cat given made >x"
    )
    line = shlex.join(["sh", "-c", script])
    factory = load_agent(f"mcp:{line}", {"workspace": "kept"}, tmp_path)
    record = play_factory(quick_provider, factory, "echo HI >given; echo there >made")
    assert record.outcome == "solved", (record.reason, record.log)
    assert record.turns[0].observation == "HI\n"
    assert "[workspace: changed given]" in record.turns[0].log
    (folder,) = kept.iterdir()
    assert folder.name.startswith("t-")
    assert (folder / "made").read_text() == "there\n"
    with pytest.raises(AgentLoadError, match="or in one of the task's directory"):
        load_agent(f"mcp:{line}", {"workspace": "yes", "folder": "kept"}, tmp_path)
    with pytest.raises(AgentLoadError, match=r"workspace=...: there is no folder .*/none"):
        load_agent(f"mcp:{line}", {"workspace": "none"}, tmp_path)


def play_factory(provider: SandboxProvider, factory: AgentFactory, gold: str) -> EpisodeRecord:
    fields = {"setup": ("echo hi >given",), "gold": (gold,)}
    try:
        return play_agent(provider, factory.make(task_of(**fields)), **fields)
    finally:
        factory.close()
