"""ACP agents on this machine: what they are served, what they report, and how they misbehave."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task, Verification
from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.rollouts.rollout import Rollout, Services, default_environment
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support import rollouts
from tests.support.conversations import make_talking

SUPPORT = Path(__file__).parents[2] / "support"
SCRIPTED = f"{sys.executable} {SUPPORT}/acp_agent.py"


@pytest.fixture(scope="module")
def provider(bubblewrap: None) -> Iterator[SandboxProvider]:
    settings = SandboxSettings("bubblewrap", scratch=("/opt/intercode/home",))
    provider = SandboxProvider(settings)
    yield provider
    provider.close()


def play(
    provider: SandboxProvider,
    command: str,
    query: str = "Go on.",
    *,
    arguments: Mapping[str, str] | None = None,
    answers: Answers | None = None,
    task: Task | None = None,
    gold: str = "echo hi >x",
    max_turns: int = 10,
    **spec: Any,
) -> EpisodeRecord:
    """Play one small task with an agent of this command line."""
    name = f"acp:{command}"
    factory = load_agent(name, arguments, Path.cwd())
    task = task or Task("t", query, (gold,), "bash", "s", "s", workdir="/w", max_turns=max_turns)
    make = make_talking(provider, answers) if answers is not None else None
    services = Services(
        provider,
        lambda spec: factory.make(spec.task),
        make or (lambda spec: default_environment(spec, provider)),
    )
    try:
        return rollouts.play(Rollout(RolloutSpec(task, agent=name, **spec), services))
    finally:
        factory.close()


def rude(way: str) -> str:
    return f"{sys.executable} -IS {SUPPORT}/rude_acp_agent.py {way}"


# -- with the SDK's own side for agents


def test_files_and_terminals_are_the_sandboxs(provider: SandboxProvider) -> None:
    record = play(provider, SCRIPTED, "WRITE hi to x.")
    assert (record.outcome, record.reason) == ("solved", "")
    first, search, remove, last = record.turns
    assert first.action == "export A='it'\"'\"'s'\nsh -c 'echo hi >x; echo $A; pwd'"
    assert (first.observation, first.status) == ("it's\n/w\n", 0)
    assert first.thought == "I think."
    assert "[the agent runs on this machine, with files and terminals" in first.log
    assert "[plan]\n- [pending] write it\n" in first.log
    assert (search.action, search.tool) == ('search({"q": "x"})', "search")
    assert search.observation == "allowed: now"
    assert remove.action == "rm /w/y"
    assert "[wrote /w/y]\n" in remove.log
    assert "[permission: allow_once: Look up]\n" in remove.log
    assert (last.action, last.thought) == ("submit", "All done.")
    assert record.left_behind == ()


@pytest.mark.parametrize(
    ("policy", "option"),
    [("once", "allow_once"), ("always", "allow_always"), ("reject", "reject_once")],
)
def test_permissions_are_answered_by_the_policy(
    provider: SandboxProvider, policy: str, option: str
) -> None:
    record = play(provider, rude("asks"), arguments={"permission": policy})
    assert f"optionId: {option}" in record.turns[0].observation
    assert f"[permission: {option}: " in record.turns[0].log


def test_paths_are_those_of_the_sandbox(provider: SandboxProvider) -> None:
    record = play(provider, SCRIPTED, "STRAY.")
    assert record.outcome == "failed", record.reason
    output = "".join(turn.observation for turn in record.turns)
    assert output.startswith("up/secret inside\n\n../etc/secret inside\n\n")
    for name in ("pipe", "../../../etc/no", "up/../nothing", "."):
        assert f"{name} refused" in output
    assert output.endswith("in the sandbox")
    assert not Path("/etc/secret").exists()
    assert not Path("/etc/written").exists()


@pytest.mark.parametrize(
    ("way", "limits", "outcome", "turns"),
    [
        ("terminals", {"max_turns": 5}, "out-of-budget", 5),
        ("terminals", {"max_turns": 10_000, "timeout": 1.0}, "timed-out", None),
        ("spends", {"budget": Budget(tokens=100)}, "out-of-budget", 0),
    ],
    ids=["turns", "time", "tokens"],
)
def test_budgets_end_it(
    provider: SandboxProvider, way: str, limits: dict[str, Any], outcome: str, turns: int | None
) -> None:
    record = play(provider, rude(way), **limits)
    assert record.outcome == outcome, record.reason
    assert record.left_behind == ()
    assert way != "spends" or "cancelled" in record.log
    assert turns is None or [turn.action for turn in record.turns] == ["true"] * turns


@pytest.mark.parametrize(
    ("way", "tokens"),
    [
        ("spends", (100, 20, 0, 0, 0)),
        ("spends-from-caches", (100, 20, 60, 30, 15)),
        ("spends-next-to-caches", (190, 35, 60, 30, 15)),
    ],
)
def test_tokens_that_it_reports_are_counted(
    provider: SandboxProvider, way: str, tokens: tuple[int, ...]
) -> None:
    usage = play(provider, rude(way)).usage
    assert (usage.input_tokens, usage.output_tokens) == tokens[:2]
    assert (usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == tokens[2:]


def test_one_that_ignores_what_it_is_served_acts_in_a_copy(provider: SandboxProvider) -> None:
    record = play(provider, rude("ignores-fs"))
    assert record.outcome == "failed", record.reason
    assert record.turns[0].action == 'edit({"title": ""})'
    record = play(provider, rude("ignores-fs"), arguments={"workspace": "yes"})
    assert (record.outcome, record.reason) == ("solved", "")


def test_it_goes_on_with_what_the_user_says(provider: SandboxProvider) -> None:
    answers = Answers(["HI."])
    arguments = {"workspace": "yes"}  # whose paths are led to the task's directory
    record = play(provider, SCRIPTED, "ASK me.", answers=answers, arguments=arguments)
    assert (record.outcome, record.reason) == ("solved", "")
    assert answers.questions == [("What shall I write?", "HI."), ("All done.", None)]
    assert record.turns[0].observation == "2\n"  # the second prompt of one session


def test_it_goes_on_with_what_the_tests_print(provider: SandboxProvider) -> None:
    verification = Verification('cat x; [ "$(cat x)" = hi ]', parser="status")
    task = Task("t", "ASK me.", (), "swe", "s", "s", workdir="/w", verification=verification)
    task = replace(task, fields=SweFields(submissions=2))
    record = play(provider, SCRIPTED, task=task, arguments={"workspace": "yes"})
    assert (record.outcome, record.reason, record.submissions) == ("solved", "", 2)
    assert [exchange.message for exchange in record.dialogue] == ["What shall I write?"]
    assert record.turns[0].observation.startswith("The tests fail")
    assert record.turns[1].observation == "2\n"  # the second prompt of one session


# -- agents that break the rules


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("not-json", "line 3 of the program's standard output is not JSON: 'Loading models...'; "),
        ("long-line", "the program wrote a line of more than 4 MiB: b'xxx"),
        ("dies", "the program exited with status 3 before it answered session/prompt; its last "
         "output: out of luck"),
        ("kept-terminals", "the agent has 5 terminals that it does not release"),
        ("same-id", "the agent made two requests with the id 1"),
        ("wrong-answer", "the agent answers the request 77, which is not open"),
        ("twice", "the agent answers the request 1, which is not open"),
        ("error", "the agent answers session/prompt with an error: no such model: {'a': 1} "
         "(-32603)"),
        ("list", "the agent answers session/prompt with [], not with an object"),
        ("deep", "line 3 of the program's standard output is not JSON: "),
        ("deep-list", "the "),
        ("long-id", "the agent made a request whose id has more than 200 characters"),
        ("odd-id", "the agent made a request with the id None, which is neither"),
        ("open-calls", "the agent has 50 tool calls that do not end"),
        ("flood", "the agent wrote more than 200 messages"),
        ("version", "the agent speaks version 9 of ACP; supported is 1"),
        ("login", "the agent answers session/new with an error: Authentication required (-32000): "
         "it needs a login; give it a key in the way it expects, or choose a"),
        ("no-session", "the agent answers session/new without a sessionId"),
    ],
)  # fmt: skip
def test_breaking_the_rules_counts_against_it(
    provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch, way: str, reason: str
) -> None:
    monkeypatch.setattr("pytest_intercode.agents.acp.connection._MAX_MESSAGES", 200)
    monkeypatch.setattr("pytest_intercode.agents.acp.updates._MAX_OPEN_CALLS", 50)
    monkeypatch.setattr("pytest_intercode.agents.acp.sandbox_services._MAX_TERMINALS", 5)
    record = play(provider, rude(way), max_turns=20)
    assert record.outcome == "agent-error", record.reason
    assert record.reason.startswith(reason)
    assert record.left_behind == ()


def test_nonsense_is_answered_and_ends_nothing(provider: SandboxProvider) -> None:
    record = play(provider, rude("nonsense"), gold="true")
    assert (record.outcome, record.reason) == ("solved", "")
    tool, last = record.turns
    assert (tool.action, tool.tool) == ("other([1])", "other")
    assert "[the agent stopped: refusal]" in last.log


@pytest.mark.parametrize(
    ("way", "outcome", "reason"),
    [
        ("silent", "timed-out", ""),
        ("never-answers", "agent-error", "the program was stopped, as its time was up, without an "
         "answer to initialize: does it speak ACP"),
    ],
)  # fmt: skip
def test_one_that_does_not_answer_is_ended_at_once(
    provider: SandboxProvider, way: str, outcome: str, reason: str
) -> None:
    began = time.monotonic()
    record = play(provider, rude(way), gold="echo other", timeout=0.5)
    assert record.outcome == outcome, record.reason
    assert record.reason.startswith(reason)
    assert record.left_behind == ()
    assert time.monotonic() - began < 30


def test_one_that_never_answered_was_stopped_though_the_end_is_seen_first(
    provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The episode is over before its agent is asked to stop; what waits for a line sees that."""
    stop_actions = Environment.stop_actions

    def stop_slowly(environment: Environment, reason: str) -> None:
        time.sleep(0.7)  # longer than a wait for a line
        stop_actions(environment, reason)

    monkeypatch.setattr(Environment, "stop_actions", stop_slowly)
    record = play(provider, rude("never-answers"), gold="echo other", timeout=0.5)
    assert record.outcome == "agent-error", record.reason
    assert record.reason.startswith("the program was stopped, as its time was up, without an ")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("acp:", {}, "expected acp:CMDLINE"),
        ("acp:no-such-agent --acp", {}, "there is no program 'no-such-agent' on the PATH"),
        ("acp:'cat", {}, "this is not a command line: No closing quotation"),
        ("acp:cat", {"permission": "maybe"}, "permission=maybe: "),
        ("acp:cat", {"color": "red"}, "no such argument; it takes workspace, permission, mode"),
    ],
)
def test_mistakes_are_one_line(name: str, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(AgentLoadError) as raised:
        load_agent(name, arguments, Path.cwd())
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
