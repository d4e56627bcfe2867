"""Calls of tools under the names of each client, and skills."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_intercode.core.turn import Turn
from pytest_intercode.projects.commands import Commands
from pytest_intercode.projects.tool_calls import ToolCalls, loaded_skill


def call(tool: str, **arguments: Any) -> Turn:
    return Turn(f"{tool}({json.dumps(arguments)})", "a result", None, tool=tool)


def shell(command: str, status: int | None = 0, tool: str = "Bash") -> Turn:
    return Turn(command, "out", None, tool=tool, status=status)


@pytest.mark.parametrize(
    "label",
    [
        "mcp__my-tickets__create_one",
        "mcp__my_tickets__create_one",
        "my-tickets_create_one",
        "my_tickets_create_one",
        "my-tickets.create_one",
        "my-tickets/create_one",
        "my-tickets__create_one",
        "mcp_my-tickets_create_one",
    ],
)
def test_an_mcp_tool_has_one_name(label: str) -> None:
    [tool_call] = ToolCalls([call(label, title="x")], ["my", "my-tickets"])
    assert (tool_call.server, tool_call.name) == ("my-tickets", "create_one")
    assert (tool_call.result, tool_call.turn, tool_call.label) == ("a result", 1, label)
    calls = ToolCalls([call(label, title="x")], ["my-tickets"])
    assert calls.called("my-tickets.create_one")
    assert calls.called("create_one")
    assert calls.called(label)
    assert not calls.called("my-tickets.create")
    assert not calls.called("other.create_one")


def test_a_server_that_is_not_known() -> None:
    [tool_call] = ToolCalls([call("mcp__a__b__c")])
    assert (tool_call.server, tool_call.name) == ("a", "b__c")
    [tool_call] = ToolCalls([call("read_file")], ["read"])
    assert tool_call.server == "read", "a client's own tool may begin as a server does"


def test_a_shell_is_a_tool() -> None:
    calls = ToolCalls([Turn("ls", "", True), shell("ls -l")])
    assert [(c.name, c.arguments, c.turn) for c in calls] == [("Bash", {"command": "ls -l"}, 2)]
    assert calls.called("Bash", command="ls -l")


def test_arguments() -> None:
    calls = ToolCalls([call("a", n=1, text="hello", nested={"x": [1]})])
    assert calls.called("a", n=1)
    assert calls.called("a", text=re.compile("^hel"), nested={"x": [1]})
    assert not calls.called("a", n=2)
    assert not calls.called("a", missing=None)
    assert not calls.called("a", n=re.compile("1"))
    [text] = ToolCalls([Turn('apply_patch("*** Begin")', "", None, tool="apply_patch")])
    assert text.arguments == {"input": "*** Begin"}


def test_what_was_called_is_said() -> None:
    calls = ToolCalls([call("mcp__t__create", title="y"), call("Read", path="a")], ["t"])
    assert calls.called("t.create", title="x", body="z").explanation.splitlines() == [
        "the agent called 2 tools:",
        "  1  t.create(title='y')                 <- title is 'y', no body",
        "  2  Read(path='a')",
    ]
    assert "<- turn 2" in calls.called("Read").explanation
    assert "<- of the server t" in calls.called("u.create").explanation
    assert ToolCalls([]).called("x").explanation == "the agent called no tools"


@pytest.mark.parametrize(
    "turn",
    [
        call("Skill", skill="release"),
        call("Skill", command="plugin:release"),
        call("skill", name="release"),
        call("Read", file_path="/w/.claude/skills/release/SKILL.md"),
        call("mcp__files__open", path="skills/release/SKILL.md"),
        shell("cat .agents/skills/release/SKILL.md"),
        shell("sed -n 1,200p /root/.codex/skills/release/SKILL.md", None),
        shell("cat .claude/skills/*/SKILL.md"),
        shell("cd .claude/skills/release && cat ./SKILL.md"),
        Turn("head -50 skills/release/SKILL.md", "", True, status=0),
    ],
)
def test_a_skill_was_loaded(turn: Turn) -> None:
    calls, commands = ToolCalls([turn]), Commands.of([turn])
    assert loaded_skill("release", calls, commands)
    assert not loaded_skill("releases", calls, commands) or "*" in turn.action


@pytest.mark.parametrize(
    "turn",
    [
        call("Skill", skill="other"),
        call("Write", file_path="skills/release/SKILL.md", content="x"),
        call("Read", file_path="skills/release/other.md"),
        shell("ls skills/release/SKILL.md"),
        shell("cat skills/release/SKILL.md", 1),
        shell("echo x > skills/release/SKILL.md"),
        shell("cat SKILL.md"),
    ],
)
def test_a_skill_was_not_loaded(turn: Turn) -> None:
    assert not loaded_skill("release", ToolCalls([turn]), Commands.of([turn]))


def test_which_skills_were_loaded_is_said() -> None:
    turns = [call("Skill", skill="other"), shell("cat skills/third/SKILL.md")]
    calls, commands = ToolCalls(turns), Commands.of(turns)
    assert loaded_skill("release", calls, commands).explanation.splitlines() == [
        "the agent loaded other skills:",
        "  1  Skill(skill='other')            (turn 1)",
        "  2  cat skills/third/SKILL.md       (turn 2)",
    ]
    assert "this one" in loaded_skill("third", calls, commands).explanation
    assert loaded_skill("x", ToolCalls([]), Commands()).explanation == "the agent loaded no skill"
