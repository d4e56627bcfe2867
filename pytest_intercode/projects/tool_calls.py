"""The tools that an agent called, by names that do not depend on the client, and skills it read.

Each client names an MCP server's tool in its own way: ``mcp__tickets__create``, ``tickets_create``,
``tickets.create``. With the known names of servers, it is ``tickets.create`` for all of them.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, overload

from pytest_intercode.core.text import pluralize
from pytest_intercode.core.turn import Turn
from pytest_intercode.projects.answer import Answer, Line, number_lines
from pytest_intercode.projects.commands import Command, Commands

__all__ = ["ToolCall", "ToolCalls", "loaded_skill"]

__tracebackhide__ = True  # a report shows the line of the test that asked

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")  # clients may replace these by other characters
_MCP_NAME = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)", re.DOTALL)
_SKILL_TOOL = re.compile(r"(?:load_|use_)?skills?", re.IGNORECASE)
_SKILL_KEYS = ("skill", "name", "skill_name", "command")
_WRITES = re.compile(r"write|edit|patch|create|replace|insert|delete|remove", re.IGNORECASE)
_SKILL_FILE = "SKILL.md"
_MAX_SHOWN = 40  # characters of an argument
# Programs that take the path of a file but do not show its content.
_SHOW_NOTHING = frozenset(
    (
        *("[", "basename", "chmod", "chown", "cp", "dirname", "echo", "file", "find", "git", "ln"),
        *("ls", "mkdir", "mv", "printf", "realpath", "rm", "rsync", "stat", "tar", "tee", "test"),
        *("touch", "tree", "wc"),
    )
)


@dataclass(frozen=True)
class ToolCall:
    """A call of one of the agent's own tools, including its shell.

    Attributes:
        name: the tool's name; for an MCP server's tool, the server's own name for it, as far as the
            client keeps it.
        server: the MCP server; empty for a tool of the client.
        arguments: the arguments of the call; for a shell, its ``command``.
        result: the result, as shown to the model.
        turn: the turn's number, from 1.
        label: the name that the client gives it.
    """

    name: str
    server: str
    arguments: Mapping[str, Any]
    result: str
    turn: int
    label: str = ""

    def is_called(self, name: str) -> bool:
        """Whether a name means this tool: ``server.tool``, ``tool``, or the client's name."""
        if name in (self.label, self.name):
            return True
        server, dot, tool = name.partition(".")
        return bool(dot and self.server) and (_plain(server), _plain(tool)) == (
            _plain(self.server),
            _plain(self.name),
        )

    @property
    def text(self) -> str:
        """The call as code, for people."""
        name = f"{self.server}.{self.name}" if self.server else self.name
        arguments = ", ".join(f"{key}={_shown(value)}" for key, value in self.arguments.items())
        return f"{name}({arguments})"


class ToolCalls(Sequence[ToolCall]):
    """The tool calls of one run, in order; none for an agent that acts through the environment.

    Args:
        turns: the episode's turns.
        servers: the names of the MCP servers that the agent was given.
    """

    def __init__(self, turns: Iterable[Turn], servers: Iterable[str] = ()) -> None:
        names = sorted(servers, key=len, reverse=True)
        self._calls = tuple(
            _call_of(turn, number, names) for number, turn in enumerate(turns, 1) if turn.tool
        )

    @overload
    def __getitem__(self, index: int) -> ToolCall: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ToolCall]: ...
    def __getitem__(self, index: int | slice) -> ToolCall | Sequence[ToolCall]:
        """Return a call, or some of them."""
        return self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<{pluralize(len(self), 'call')} of tools>"

    def called(self, tool: str, /, **arguments: Any) -> Answer:
        """Return whether the agent called a tool.

        Args:
            tool: ``server.tool`` for a tool of an MCP server; for any tool, its name.
            arguments: arguments that the call must have, among others: each is an equal value, or a
                compiled regular expression that matches somewhere in a text.
        """
        argument_texts = "".join(f", {name}={value!r}" for name, value in arguments.items())
        question = f'called("{tool}"{argument_texts})'
        matching = [call for call in self if call.is_called(tool)]
        good = [call for call in matching if not list(_differences(call, arguments))]
        if good:
            marks = {id(call): f"turn {call.turn}" for call in good}
        else:
            marks = {id(call): ", ".join(_differences(call, arguments)) for call in matching}
            part = tool.rpartition(".")[2]
            for call in self:
                if _plain(part) == _plain(call.name):
                    server = (
                        f"of the server {call.server}" if call.server else "of the client's own"
                    )
                    marks.setdefault(id(call), server)
        return Answer(bool(good), question, lambda _: self._explain(marks))

    def _explain(self, marks: Mapping[int, str]) -> str:
        if not self._calls:
            return "the agent called no tools"
        lines = [Line(call.text, "", marks.get(id(call), "")) for call in self]
        return "\n".join(
            [f"the agent called {pluralize(len(self), 'tool')}:", *number_lines(lines)]
        )


def loaded_skill(name: str, calls: ToolCalls, commands: Commands) -> Answer:
    """Return whether the agent loaded a skill.

    An agent has loaded a skill if it called the client's tool for skills (``Skill`` in Claude Code,
    ``skill``) with its name, or if it read ``skills/NAME/SKILL.md`` in any folder: with another
    tool that has the path as an argument and does not write, or with a command that has it as a
    word, except for commands like ``ls`` that do not show the content. Failed commands do not
    count. Skills that the client itself puts into the prompt, or that a script reads, are not seen.

    Args:
        name: the skill's name, which is that of its folder.
        calls: the tool calls of the run.
        commands: the commands of the run.
    """
    loads = [*_loads_of_calls(calls), *_loads_of_commands(commands)]
    matching = [
        (turn, description) for turn, skill, description in loads if fnmatchcase(name, skill)
    ]
    question = f'loaded_skill("{name}")'
    if matching:
        lines = [Line(description, f"turn {turn}", "this one") for turn, description in matching]
        return Answer(True, question, "\n".join(["the agent loaded it:", *number_lines(lines)]))
    if not loads:
        return Answer(False, question, "the agent loaded no skill")
    lines = [Line(description, f"turn {turn}") for turn, _, description in sorted(loads)]
    header = "the agent loaded other skills:"
    return Answer(False, question, "\n".join([header, *number_lines(lines)]))


# -- calls


def _call_of(turn: Turn, number: int, servers: Sequence[str]) -> ToolCall:
    arguments = turn.arguments
    if arguments is None:
        arguments = {"command": turn.action}
    server, name = _split_name(turn.tool, servers)
    return ToolCall(name, server, arguments, turn.observation, number, turn.tool)


def _split_name(label: str, servers: Sequence[str]) -> tuple[str, str]:
    """Return the server and the tool that a client's name means; no server for its own tools.

    Args:
        label: the name.
        servers: the known servers, the longest name first.
    """
    for server in servers:
        words = map(re.escape, filter(None, _NOT_IN_NAMES.split(server)))
        pattern = rf"(?:mcp[_.]+)?[^A-Za-z0-9]*{'[^A-Za-z0-9]+'.join(words)}(?:__|[_./:-])_*(.+)"
        match = re.fullmatch(pattern, label, re.DOTALL | re.IGNORECASE)
        if match is not None:
            return server, match[1]
    match = _MCP_NAME.fullmatch(label)
    return (match["server"], match["tool"]) if match else ("", label)


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name).strip("_").lower()


def _shown(value: Any) -> str:
    """Return the beginning of an argument's repr, even if a model made it deep or long."""
    text = repr(value[:_MAX_SHOWN]) if isinstance(value, str) else reprlib.repr(value)
    return text[:_MAX_SHOWN]


def _differences(call: ToolCall, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between a call's arguments and the expected ones."""
    for name, value in arguments.items():
        if name not in call.arguments:
            yield f"no {name}"
            continue
        actual = call.arguments[name]
        if isinstance(value, re.Pattern):
            is_equal = isinstance(actual, str) and bool(value.search(actual))
        else:
            is_equal = bool(actual == value)
        if not is_equal:
            yield f"{name} is {_shown(actual)}"


# -- skills: pairs of a turn and a skill's name, and description it was loaded


def _loads_of_calls(calls: Iterable[ToolCall]) -> Iterator[tuple[int, str, str]]:
    for call in calls:
        texts = [value for value in call.arguments.values() if isinstance(value, str)]
        if _SKILL_TOOL.fullmatch(call.name):
            values = (call.arguments.get(key) for key in _SKILL_KEYS)
            skill = next((value for value in values if isinstance(value, str)), "")
            # A plugin's skills are named PLUGIN:SKILL.
            yield call.turn, skill.strip().lstrip("/").rpartition(":")[2], call.text
        elif not _WRITES.search(call.name):
            for text in texts:
                skill = _skill_of_path(text)
                if skill:
                    yield call.turn, skill, call.text


def _loads_of_commands(commands: Iterable[Command]) -> Iterator[tuple[int, str, str]]:
    folders: dict[int, str] = {}  # by turn, the folder that ``cd`` changed to
    for command in commands:
        program, *words = command.words
        if program in ("cd", "pushd") and words:
            folders[command.turn] = words[-1].rstrip("/")
        if program.rpartition("/")[2] in _SHOW_NOTHING or command.status not in (None, 0):
            continue
        for word in words:
            skill = _skill_of_path(word)
            if not skill and word.removeprefix("./") == _SKILL_FILE:
                skill = _skill_of_path(f"{folders.get(command.turn, '')}/{_SKILL_FILE}")
            if skill:
                yield command.turn, skill, command.text


def _skill_of_path(path: str) -> str:
    """Return the folder of a skill, from the path of its file; a pattern for ``skills/*/...``."""
    parts = path.strip().split("/")
    is_skill = len(parts) >= 3 and parts[-3] == "skills" and fnmatchcase(_SKILL_FILE, parts[-1])
    return parts[-2] if is_skill and "\n" not in path else ""
