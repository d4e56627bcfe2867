"""The command line of ``mcp:CMDLINE``: words with placeholders, filled in for each episode.

The line is split into words before the placeholders are filled in, so a query stays one word
whatever it holds, and no shell ever reads it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from pytest_intercode.agents.program import find_program
from pytest_intercode.errors import AgentError, AgentLoadError, suggestion

__all__ = ["PLACEHOLDERS", "CommandLine"]

PLACEHOLDERS = {
    "prompt": "the query, with words on the tools and on how to end",
    "query": "the query alone",
    "task_id": "the task's id",
    "env": "bash, sql, python or ctf",
    "config": "a JSON file with the server's configuration (mcpServers), for stdio",
    "config_http": "the same for streamable HTTP",
    "stdio": "a program that is the stdio server; it takes no arguments",
    "url": "the address of the streamable HTTP server",
    "token": "the bearer token of that server",
    "folder": "the folder that the program runs in",
    "here": "the folder where relative paths of the option start, for files of yours",
}

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_LONGEST = 128 * 1024 - 1  # bytes; the kernel takes no longer word


class CommandLine:
    """A command line that was found to be right.

    Args:
        name: the value of ``--intercode-agent``, for messages.
        line: what follows ``mcp:`` in it.
        folder: where a relative path of the program starts.

    Raises:
        AgentLoadError: it cannot be split, has an unknown placeholder, or there is no such
            program.
    """

    def __init__(self, name: str, line: str, folder: Path) -> None:
        self._name = name
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise self._wrong(f"the command line cannot be split into words: {error}") from None
        if not self._words or not self._words[0]:
            raise self._wrong("a command line is needed, as in mcp:my-agent --mcp-config {config}")
        for word in self._words:
            self._check(word)
        self._words[0] = self._find(self._words[0], folder)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """Return the words with all placeholders filled in.

        Raises:
            AgentError: a value cannot stand in a command line.
        """
        return [self._words[0]] + [
            _PLACE.sub(lambda found: _value(found, values), word) for word in self._words[1:]
        ]

    def _check(self, word: str) -> None:
        for found in _PLACE.finditer(word):
            if found[0] in ("{", "}"):
                raise self._wrong(f"{word!r} has a single {found[0]!r}; write {found[0] * 2!r}")
            if found[1] is not None and found[1] not in PLACEHOLDERS:
                allowed = ", ".join(f"{{{key}}}" for key in PLACEHOLDERS)
                raise self._wrong(
                    f"unknown placeholder {found[0]}; allowed are {allowed}, and {{{{ for a brace."
                    + suggestion(found[1], PLACEHOLDERS)
                )

    def _find(self, word: str, folder: Path) -> str:
        """Return where the program is; the folder that it is started in is another."""
        if {found[1] for found in _PLACE.finditer(word)} - {None, "here"}:
            raise self._wrong(f"the program's name {word!r} may have no placeholder but {{here}}")
        word = _PLACE.sub(lambda found: _value(found, {"here": str(folder)}), word)
        try:
            return find_program([word], folder)
        except AgentLoadError as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, what: str) -> AgentLoadError:
        return AgentLoadError(f"--intercode-agent={self._name}: {what}")


def check_value(name: str, value: str) -> str:
    """Return a value that may stand in a command line or in an environment variable.

    Raises:
        AgentError: it may not.
    """
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise AgentError(f"the task's {name} has half a surrogate pair, which is no text") from None
    if "\0" in value:
        raise AgentError(f"the task's {name} has a NUL, which no command line can hold")
    if size > _LONGEST - len("INTERCODE_PROMPT="):
        raise AgentError(f"the task's {name} has {size} bytes; a program's word may have 128 KiB")
    return value


def _value(found: re.Match[str], values: Mapping[str, str]) -> str:
    if found[1] is None:
        return found[0][0]  # a doubled brace
    return values[found[1]]
