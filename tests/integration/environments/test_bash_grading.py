"""End states that are more than grading reads: whose fault they are, and the end of a grading."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.task import FileSpec, Task, Verification
from pytest_intercode.core.turn import Profile
from pytest_intercode.environments.bash.fields import BashFields
from pytest_intercode.environments.checks.fields import Check, ChecksFields
from pytest_intercode.errors import RolloutCancelled, SandboxError, TaskError
from pytest_intercode.rewards.bash_strict import bash_strict_reward_again, ungradable_reward
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes import attached
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.reading import GradingLimits, Reading
from tests.support import puzzles
from tests.support.rollouts import play
from tests.unit.rollouts.test_turn_loop import acts

provider = puzzles.provider  # fixture: of each backend
quick_provider = puzzles.quick_provider
MANY = "for i in {1..60}; do : >$i; done"


def rollout(provider: SandboxProvider, *actions: str, **fields: Any) -> Rollout:
    """Return a rollout of an agent that sends the given actions."""
    spec = {name: fields.pop(name) for name in ("feedback", "profile") if name in fields}
    fields = {"gold": ("echo x >x",), "workdir": "/w", "env": "bash", **fields}
    task = Task(id="t", query="Do.", suite="s", dataset="s", **fields)
    services = Services(provider, make_agent=lambda spec: Agent("step", act=acts(*actions)))
    return Rollout(RolloutSpec(task, agent="mine", timeout=20, **spec), services)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttachedSandbox, "grading", GradingLimits(entries=50))


@pytest.mark.usefixtures("few")
def test_an_agent_that_leaves_too_much_earns_nothing(provider: SandboxProvider) -> None:
    record = play(rollout(provider, "echo x >x", MANY, "submit"))
    said = "what was left cannot be graded: there are more than 50 files and folders"
    assert (record.outcome, record.reward, record.reason) == ("failed", 0.0, said)
    assert record.attempts == ()
    assert ungradable_reward(record.state["ungradable"]).reason == said


@pytest.mark.usefixtures("few")
def test_with_rewards_as_feedback_it_goes_on(provider: SandboxProvider) -> None:
    actions = MANY, "rm *; echo x >x"
    record = play(rollout(provider, *actions, feedback="reward"))
    assert [turn.reward for turn in record.turns] == [0.0, 1.0]
    assert record.outcome == "solved"
    assert "ungradable" not in record.state


def by_oracle(
    provider: SandboxProvider, gold: str, profile: Profile = "strict", **fields: Any
) -> Any:
    """Play a gold by the oracle, and return the outcome, or what is wrong with the task."""
    task = Task(
        id="t",
        query="Do.",
        suite="s",
        dataset="s",
        gold=("echo x >f", gold),
        env="bash",
        workdir="/w",
        **fields,
    )
    services = Services(provider, make_agent=lambda spec: make_oracle(spec.task))
    try:
        return play(Rollout(RolloutSpec(task, timeout=20, profile=profile), services)).outcome
    except TaskError as error:
        return str(error).partition("gold ends ")[2]


HOW = "; if that is right, say why: audit: {gold-runs: REASON}"


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("grep y f", f"with status 1 and prints nothing{HOW}"),
        (
            "cat nosuch",
            "with status 1 and prints nothing but errors: cat: nosuch: No such file or directory"
            f"{HOW}",
        ),
        ("cat f nosuch", "solved"),  # it prints something
        ("grep -c y f", "solved"),
        ("rm f", "solved"),  # with status 0
    ],
)
def test_a_gold_that_fails_and_prints_nothing_is_at_fault(
    quick_provider: SandboxProvider, gold: str, said: str
) -> None:
    assert by_oracle(quick_provider, gold) == said


def test_a_gold_that_is_to_fail_is_declared(quick_provider: SandboxProvider) -> None:
    reason = "nothing is to be found"
    assert by_oracle(quick_provider, "grep y f", audit={"gold-runs": reason}) == "solved"
    assert by_oracle(quick_provider, "grep y f", xfail=reason) == "solved"
    assert by_oracle(quick_provider, "grep y f", profile="paper") == "solved"


def test_no_agent_is_judged_by_a_gold_that_fails(quick_provider: SandboxProvider) -> None:
    for _ in range(2):
        with pytest.raises(TaskError, match="gold ends with status 1 and prints nothing"):
            play(rollout(quick_provider, "true", "submit", gold=("false",)))


@pytest.mark.usefixtures("few")
def test_a_gold_that_leaves_too_much_is_at_fault(provider: SandboxProvider) -> None:
    with pytest.raises(TaskError, match="gold leaves what cannot be graded: there are more than"):
        play(rollout(provider, "submit", gold=(MANY,)))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"env": "swe", "verification": Verification("true", "status")},
        {"env": "checks", "fields": ChecksFields(checks=(Check("true"),))},
    ],
)
def test_a_setup_that_leaves_too_much_is_at_fault(
    provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(attached, "SETUP_LIMITS", GradingLimits(entries=50))
    with pytest.raises(TaskError, match="setup leaves what cannot be graded"):
        play(rollout(provider, "submit", setup=(MANY,), **fields))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let reading an agent's files take minutes; return what is set when it has begun."""
    began = threading.Event()
    check = Reading.check

    def slowly(self: Reading) -> None:
        if self.limits.entries == 1000:
            began.set()
            time.sleep(0.2)
        check(self)

    monkeypatch.setattr(Reading, "check", slowly)
    return began


def crawl(sandbox: AttachedSandbox) -> None:
    """Have the end of a sandbox read slowly, and gold's not."""
    sandbox.grading = GradingLimits(entries=1000, seconds=100.0)


def test_a_grading_is_cancelled(provider: SandboxProvider, slow: threading.Event) -> None:
    played = rollout(provider, MANY, "submit")
    environment = played.make_environment()
    played.prepare(environment)
    crawl(environment.sandbox)  # type: ignore[attr-defined]
    began = time.monotonic()

    def cancel() -> None:
        assert slow.wait(20)
        played.cancel("not wanted")

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(RolloutCancelled, match="not wanted"):
        played.run(played.make_agent(), environment)
    played.close()
    thread.join()
    assert time.monotonic() - began < 30


def test_closing_ends_a_grading(provider: SandboxProvider, slow: threading.Event) -> None:
    """As Ctrl-C does."""
    played = rollout(provider)
    environment = played.make_environment()
    played.prepare(environment)
    crawl(environment.sandbox)  # type: ignore[attr-defined]
    environment.step(MANY)
    ended: list[BaseException] = []

    def submit() -> None:
        with pytest.raises(SandboxError) as raised:
            environment.submit()
        ended.append(raised.value)

    thread = threading.Thread(target=submit)
    thread.start()
    assert slow.wait(20)
    began = time.monotonic()
    played.close()
    assert time.monotonic() - began < 20
    thread.join(5)
    assert len(ended) == 1


def test_the_paper_profiles_git_is_the_agents_to_break(
    provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_intercode.environments.bash import repository

    monkeypatch.setattr(repository, "_GRADING_TIMEOUT", 1.0)
    profile: Profile = "paper"
    trojan = "git -C / config core.fsmonitor 'sleep 100;'"
    record = play(rollout(provider, trojan, "submit", profile=profile))
    assert (record.outcome, record.reward, record.attempts) == ("failed", 0.0, ())
    assert "did not finish within 1 s" in record.reason


# -- diffs of what differs


def test_a_miss_records_diffs_of_its_text_files(provider: SandboxProvider) -> None:
    actions = (
        "sed -i s/a/A/ both.txt; echo new >own.txt; head -c 300000 /dev/zero >large; "
        "printf '\\0' >binary; ln -s own.txt link; chmod 600 mode.txt",
        "submit",
    )
    gold = ("sed -i s/b/B/ both.txt; echo ok >done.txt; chmod 640 mode.txt; echo x >binary",)
    files = {
        "both.txt": FileSpec("file", b"a\nb\n"),
        "mode.txt": FileSpec("file", b"m\n"),
    }
    record = play(rollout(provider, *actions, gold=gold, files=files))
    assert record.state["diffs"] == {
        "/w/both.txt": ["@@ -1 +1 @@", "-a", "-B", "+A", "+b"],
        "/w/done.txt": ["@@ -1 +1 @@", "-ok"],
        "/w/own.txt": ["@@ -1 +1 @@", "+new"],
    }
    assert bash_strict_reward_again(record.state).value == record.reward
    solved = play(rollout(provider, *gold, "submit", gold=gold, files=files))
    assert "diffs" not in solved.state


def test_diffs_are_those_to_the_best_alternative(quick_provider: SandboxProvider) -> None:
    gold, other = "echo one >x; echo two >y", "echo 1 >x; echo 2 >y; echo 3 >z"
    record = play(
        rollout(
            quick_provider,
            *("echo 1 >x; echo 2 >y; echo 4 >z", "submit"),
            gold=(gold,),
            fields=BashFields(((other,),)),
        )
    )
    assert record.state["diffs"] == {"/w/z": ["@@ -1 +1 @@", "-3", "+4"]}


def test_a_sandbox_that_does_not_let_its_files_be_read_costs_only_the_diffs(
    quick_provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise SandboxError("gone")

    monkeypatch.setattr(AttachedSandbox, "archive", broken)
    record = play(rollout(quick_provider, "echo y >x", "submit"))
    assert (record.outcome, record.attempts) == ("failed", ())
    assert "diffs" not in record.state
    assert record.state["agent"]["touched"] == ["/w/x"]
