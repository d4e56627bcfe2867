"""How agents are written, and what they are called in a run of several."""

from __future__ import annotations

import pytest

from pytest_intercode.agents.choice import AgentChoice, choose_agents, parse_agent
from pytest_intercode.errors import AgentLoadError


def choose(*written: str, **shared: str) -> tuple[AgentChoice, ...]:
    return choose_agents([parse_agent(text) for text in written], shared)


def labels(*written: str, **shared: str) -> list[str]:
    return [agent.label for agent in choose(*written, **shared)]


@pytest.mark.parametrize(
    ("written", "name", "arguments"),
    [
        ("codex", "codex", {}),
        ("codex:model=gpt-x", "codex", {"model": "gpt-x"}),
        ("claude:model=a, effort = high", "claude", {"model": "a", "effort": "high"}),
        (
            "react:base_url=http://a:80/v1?b=c,model=",
            *("react", {"base_url": "http://a:80/v1?b=c", "model": ""}),
        ),
        ("module:Attr", "module:Attr", {}),
        ("package.module:Outer.Attr:key=a:b", "package.module:Outer.Attr", {"key": "a:b"}),
        (
            "a folder/file.py:Attr:key=value,b=c",
            "a folder/file.py:Attr",
            {"key": "value", "b": "c"},
        ),
        ("installed:my/recipe.toml:model=m", "installed:my/recipe.toml", {"model": "m"}),
        # What takes a command line or a file has no arguments.
        ("command:python a.py:B --x=y,z", "command:python a.py:B --x=y,z", {}),
        ("mcp:agent {prompt} a:b=c", "mcp:agent {prompt} a:b=c", {}),
        ("acp:agent --acp a:b=c", "acp:agent --acp a:b=c", {}),
        ("replay:a:b=c.jsonl", "replay:a:b=c.jsonl", {}),
        # What cannot be loaded says so when it is loaded.
        ("claud:model=a", "claud", {"model": "a"}),
        ("command", "command", {}),
    ],
)
def test_an_agent_may_have_arguments(written: str, name: str, arguments: dict[str, str]) -> None:
    assert parse_agent(written) == AgentChoice(name, arguments)


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("codex:gpt-x", "codex:...: argument 1 is not of the form KEY=VALUE"),
        ("codex:", "codex:...: argument 1 is not of the form KEY=VALUE"),
        ("codex:model=a,", "codex:...: argument 2 is not of the form KEY=VALUE"),
        ("react:api_key=secret,b", "react:...: argument 2 is not of the form"),
        (
            "react:model=a,2b=c",
            "react:...: argument 2 is not of the form KEY=VALUE",
        ),
        ("m:Attr:key", "m:Attr:...: argument 1 is not of the form KEY=VALUE"),
        ("a/b.py:Attr:x y=z", "a/b.py:Attr:...: argument 1 is not of the form"),
        ("codex:model=a,model=b", "codex:...: the argument model is given twice"),
    ],
)
def test_an_argument_that_is_none(written: str, place: str) -> None:
    with pytest.raises(AgentLoadError) as caught:
        parse_agent(written)
    assert str(caught.value).startswith(f"--intercode-agent={place}")
    assert "secret" not in str(caught.value)


def test_arguments_of_its_own_come_first() -> None:
    one, other = choose("codex:model=a", "claude", model="b", effort="high")
    assert one.arguments == {"model": "a", "effort": "high"}
    assert other.arguments == {"model": "b", "effort": "high"}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["codex:model=a"], ["codex"]),
        (["codex", "claude:effort=high"], ["codex", "claude"]),
        (["codex:model=a,effort=x", "codex:effort=x,model=b"], ["codex:model=a", "codex:model=b"]),
        (["codex", "codex:model=b,effort=x"], ["codex", "codex:effort=x,model=b"]),
        (["a.b:Agent", "agents/c.py:Other.Agent"], ["Agent", "Other.Agent"]),
        (["a:Agent", "b.py:Agent"], ["a:Agent", "b.py:Agent"]),
        (["a:codex", "codex"], ["a:codex", "codex"]),
        (["a:Agent:x=1", "a:Agent:x=2"], ["Agent:x=1", "Agent:x=2"]),
        (["installed:codex", "installed:my/recipe.toml"], ["codex", "installed:recipe.toml"]),
        (["installed:codex:model=a", "codex:model=b"], ["codex:model=a", "codex:model=b"]),
        (
            ["command:env A=b python3 -u x/agent.py --fast", "mcp:codex exec {prompt}", "acp:x -a"],
            ["command:agent.py", "mcp:codex", "acp:x"],
        ),
        (["command:a --x", "command:a --y"], ["command:a --x", "command:a --y"]),
        (["replay:runs/a.jsonl", "replay:runs/b.jsonl"], ["replay:a.jsonl", "replay:b.jsonl"]),
        (
            ["react:model=a,api_key=s", "react:model=b,api_key=t"],
            ["react:model=a", "react:model=b"],
        ),
    ],
)
def test_labels_are_as_short_as_tells_agents_apart(written: list[str], expected: list[str]) -> None:
    assert labels(*written) == expected


@pytest.mark.parametrize(
    ("written", "shared", "message"),
    [
        (["codex", "claude", "codex"], {}, "codex: this agent is given twice"),
        (["installed:codex", "codex"], {}, "codex: this agent is given twice"),
        (["codex:model=a", "codex"], {"model": "a"}, "codex:model=a: this agent is given twice"),
        (
            ["react:api_key=s", "react:api_key=t"],
            {},
            "react:api_key=(hidden): two agents differ only in a key",
        ),
    ],
)
def test_agents_that_are_the_same(written: list[str], shared: dict[str, str], message: str) -> None:
    with pytest.raises(AgentLoadError) as caught:
        choose(*written, **shared)
    assert str(caught.value).startswith(f"--intercode-agent={message}")


def test_an_error_says_where_an_argument_was_given() -> None:
    [agent] = choose("codex:modl=a", effort="x")
    message = "--intercode-agent-arg {}=...: the agent 'codex' has no such argument"
    own, shared = message.format("modl"), message.format("effort")
    assert agent.explain(own, {"effort": "x"}).startswith("--intercode-agent=codex:modl=...: the")
    assert agent.explain(shared, {"effort": "x"}) == shared


@pytest.mark.parametrize("written", ["codex,claude", "codex claude", "codex:api_key=s, claude"])
def test_several_in_one_value(written: str) -> None:
    with pytest.raises(AgentLoadError) as caught:
        parse_agent(written)
    assert str(caught.value) == (
        "--intercode-agent=codex...: the option names one agent at a time; give it once for each "
        "of codex, claude; in an ini file, write one per line, in TOML a list"
    )
