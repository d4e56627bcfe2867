"""What an agent that owns its shell does beside its turns: commands and files of the sandbox."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.access import extract, remove_links_out
from pytest_intercode.errors import AgentError, BudgetExhausted
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support import puzzles, rollouts

provider = puzzles.provider  # fixture: of each backend
quick_provider = puzzles.quick_provider
Run = Callable[[AgentEnvironment], object]


def play(provider: SandboxProvider, run: Run, **fields: Any) -> EpisodeRecord:
    fields = {"env": "bash", "gold": ("echo x >x",), "workdir": "/w", **fields}
    task = Task(id="t", query="Do.", suite="s", dataset="s", **fields)
    services = Services(provider, make_agent=lambda _: Agent("loop", run=lambda _, env: run(env)))
    return rollouts.play(Rollout(RolloutSpec(task, agent="mine", timeout=30), services))


def test_commands_take_no_turn(provider: SandboxProvider) -> None:
    seen: list[Any] = []

    def run(env: AgentEnvironment) -> None:
        env.step("cd /tmp; name=kept; echo graded")
        seen.append(env.exec("pwd; echo $name; echo oops >&2; exit 3"))
        seen.append(env.exec("pwd", cwd="sub"))
        seen.append(env.exec("mkdir sub && cd sub && pwd"))
        seen.append(env.exec("sleep 60", timeout=0.3).status)
        seen.append(str(env.step("pwd; echo $name").__getitem__(0)))
        seen.append(env.exec("id -un; touch /w/theirs", user="nobody"))
        seen.append(env.exec("echo x >/w/x; rm -r /w/sub; echo done"))

    record = play(provider, run, gold=("echo x >x; rm -rf sub; cd /tmp; pwd; echo kept",))
    first, wrong, made, late, after, other, last = seen
    assert first == (3, "/w\n\noops\n")
    assert wrong.status == 1
    assert made == (0, "/w/sub\n")
    assert late is None
    assert after == "/tmp\nkept\n"
    assert other.status == 1
    assert other.output.startswith("nobody\n")
    assert last == (0, "done\n")
    # What was printed beside the actions is not what is graded.
    assert (record.outcome, len(record.turns)) == ("solved", 2), record.reason
    assert "$ mkdir sub && cd sub && pwd\n/w/sub\n[status 0]\n" in record.turns[1].log
    assert "[no status]" in record.turns[1].log
    assert "echo done" in record.log


def test_a_command_may_count_as_a_turn(quick_provider: SandboxProvider) -> None:
    def run(env: AgentEnvironment) -> None:
        assert env.exec("echo x >x; echo said", counts_as_turn=True) == (0, "said\n")

    record = play(quick_provider, run, gold=("echo x >x; echo said",))
    assert record.outcome == "solved"
    assert [(turn.action, turn.observation) for turn in record.turns[:1]] == [
        ("echo x >x; echo said", "said\n")
    ]


def test_files_go_in_and_come_out(provider: SandboxProvider, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "deep").mkdir(parents=True)
    (mine / "deep" / "run.sh").write_text("echo hi\n")
    (mine / "deep" / "run.sh").chmod(0o755)
    (mine / "link").symlink_to("deep/run.sh")
    content = bytes(range(256)) * 1000
    (tmp_path / "blob").write_bytes(content)
    back = tmp_path / "back"

    def run(env: AgentEnvironment) -> None:
        env.upload(mine, "there")
        env.upload(tmp_path / "blob", "/w/new/blob")
        assert env.exec("there/link; stat -c %U there/deep/run.sh").output == "hi\nroot\n"
        assert env.download("new/blob") == content
        env.exec("ln -s /etc/passwd there/out; ln -s . there/here; mkfifo there/pipe")
        env.exec("ln there/deep/run.sh there/deep/run2.sh")
        env.download("there", back)
        env.download("there/deep/run.sh", tmp_path / "one" / "copy.sh")
        with pytest.raises(AgentError, match=r"of there: it is not a file; give to=FOLDER"):
            env.download("there")
        with pytest.raises(AgentError, match=r"download of /w/none: it is not there"):
            env.download("/w/none")
        with pytest.raises(AgentError, match=r"upload of .*/none: .*No such file"):
            env.upload(tmp_path / "none", "x")
        env.exec("rm -r there new; echo x >x")

    assert play(provider, run).outcome == "solved"
    assert sorted(path.relative_to(back).as_posix() for path in back.rglob("*")) == [
        *("deep", "deep/run.sh", "deep/run2.sh", "here", "link")
    ]
    assert (back / "deep/run2.sh").read_text() == "echo hi\n"
    assert (back / "link").read_text() == "echo hi\n"
    assert (back / "deep/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "one" / "copy.sh").read_text() == "echo hi\n"


def test_the_rights_are_the_tasks_users(provider: SandboxProvider, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine\n")

    def run(env: AgentEnvironment) -> None:
        env.upload(tmp_path / "mine", "own")
        assert env.exec("id -un; stat -c %U own").output == "nobody\nnobody\n"
        with pytest.raises(AgentError, match=r"upload to /etc/mine: .*denied"):
            env.upload(tmp_path / "mine", "/etc/mine")
        with pytest.raises(AgentError, match=r"it is not there, or nobody may not read it"):
            env.download("secret")
        with pytest.raises(AgentError, match=r"runs as nobody, and may not be another user"):
            env.exec("id", user="root")

    setup = ("chmod 777 .; echo s >secret; chmod 600 secret",)
    there = {"user": "nobody", "workdir": "/tmp/w", "setup": setup}
    record = play(provider, run, **there, gold=("echo mine >own",))
    assert record.outcome == "solved", record.reason


def test_where_there_is_no_shell(quick_provider: SandboxProvider) -> None:
    def run(env: AgentEnvironment) -> None:
        env.exec("ls")

    record = play(quick_provider, run, env="python", gold=("1",))
    assert record.outcome == "agent-error"
    assert record.reason == "env.exec(): the environment python has no shell"


def test_where_the_sandbox_is_and_when_it_is_over(provider: SandboxProvider) -> None:
    def run(env: AgentEnvironment) -> None:
        backend, name = env.sandbox
        assert backend == provider.choice.backend
        assert name
        env.exec("echo x >x")
        env.submit()
        with pytest.raises(BudgetExhausted):
            env.exec("echo y >x")

    assert play(provider, run).outcome == "solved"


def test_what_it_broke_is_its_own_fault(provider: SandboxProvider) -> None:
    def run(env: AgentEnvironment) -> None:
        env.exec("echo x >x; rm -f /usr/bin/tar /bin/tar")
        env.download("x")

    record = play(provider, run)
    assert record.attempts == ()
    if provider.choice.backend == "docker":  # with bubblewrap, /usr is the host's
        assert record.outcome == "agent-error"
        assert record.reason.startswith("download of /w/x: it is not there")


@pytest.mark.parametrize(
    ("name", "said"), [("../out", "leads elsewhere"), ("/etc/x", "leads elsewhere")]
)
def test_archives_of_a_sandbox_are_not_trusted(tmp_path: Path, name: str, said: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(AgentError, match=said):
        extract(buffer.getvalue(), tmp_path / "to")
    huge = tarfile.TarInfo("./x")
    huge.size = 10**12
    with pytest.raises(AgentError, match="it holds too much"):
        extract(huge.tobuf(), tmp_path / "to")
    for garbage in (b"", b"garbage" * 100):
        with pytest.raises(AgentError, match="cannot be unpacked"):
            extract(garbage, tmp_path / "to")
    assert not (tmp_path / "out").exists()


def test_a_link_that_leads_out_through_another_is_left_out(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        folder = tarfile.TarInfo("./")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for link, target in (("./c", "d/.."), ("./d", "."), ("./e", "d/d/../../../secret")):
            member = tarfile.TarInfo(link)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    (tmp_path / "secret").write_text("s")
    extract(buffer.getvalue(), tmp_path / "to")
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["d"]


def test_links_of_earlier_archives_lead_nothing_out(tmp_path: Path) -> None:
    def received(*links: tuple[str, str], file: str = "") -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name in ("./", "./p", "./p/q"):
                folder = tarfile.TarInfo(name)
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
            for name, target in links:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, target
                archive.addfile(member)
            if file:
                archive.addfile(tarfile.TarInfo(file))
        extract(buffer.getvalue(), tmp_path / "to")

    victim = tmp_path / "victim"
    victim.mkdir()
    mine = tmp_path / "to" / "mine"
    received(("./b", "p/q"), ("./a", "b/../../victim"))
    mine.symlink_to(victim)  # of the user's own
    assert (tmp_path / "to" / "a").is_symlink()
    received(("./b", "p"))
    assert not (tmp_path / "to" / "a").is_symlink()
    received(file="./mine/evil")
    received(file="./b/file")  # not through the link of before
    assert [*victim.iterdir()] == []
    assert (mine / "evil").is_file()


def test_many_links_that_lead_out_are_removed_in_time(tmp_path: Path) -> None:
    links = [tmp_path / f"{number}" for number in range(5000)]
    for link in links:
        link.symlink_to("/etc")
    begin_time = time.process_time()
    assert set(remove_links_out(links, tmp_path)) == set(links)
    assert time.process_time() - begin_time < 3
