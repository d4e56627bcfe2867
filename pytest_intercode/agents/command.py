"""Command agents: a program in any language, which talks JSON lines on its standard streams.

``--intercode-agent='command:python3 agent.py --fast'`` starts the program once per episode. It
reads a line about its task, and from then on writes a line and reads one in turn; docs/agents.md
has the protocol. Whatever it does, it ends with its episode, and all that it started with it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_intercode.agents.json_lines import JsonLines
from pytest_intercode.agents.ledger import log
from pytest_intercode.agents.program import Program, find_program, said_of_exit
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.errors import AgentError, AgentLoadError, BudgetExhausted, suggestion

__all__ = ["VERSION", "make_factory"]

VERSION = 1
"""The protocol's version; it is counted up when what worked before works no more."""

_GRACE = 2.0  # seconds that a program has to exit once it was told the end
_KEYS = ("action", "submit", "thought", "usage")
_USAGE = ("requests", "input_tokens", "output_tokens", "cost")
_SHOWN = 120  # characters of a bad line
_LAST_LINES = 3  # of what it printed, in the reason of an error


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of agents that are runs of a program.

    Args:
        name: the agent as the user named it.
        rest: the command line.
        arguments: handed to the program in its first line, as they are.
        folder: where the program runs.

    Raises:
        AgentLoadError: the command line cannot be read, or names no program.
    """
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise AgentLoadError(
            f"--intercode-agent={name}: this is not a command line: {error}"
        ) from None
    try:
        find_program(words, folder)
    except AgentLoadError as error:
        raise AgentLoadError(f"--intercode-agent={name}: {error}") from None

    def make(task: Task) -> Agent:
        run = _CommandRun(words, dict(arguments), folder)
        return Agent(
            "loop", run=run.play, close=run.close, abort=run.abort, again=lambda: make(task)
        )

    return AgentFactory(name, make)


class _CommandRun:
    """One episode of a command agent."""

    def __init__(self, words: list[str], arguments: Mapping[str, str], folder: Path) -> None:
        self._words = words
        self._arguments = arguments
        self._folder = folder
        self._program: Program | None = None
        self._aborted = False
        self._printed = ""

    def play(self, task: TaskView, env: Any) -> None:
        """Start the program and do what it says until the episode is over."""
        program = self._program = Program(
            self._words,
            folder=self._folder,
            # Python's print() would wait for a page full of lines.
            variables={"PYTHONUNBUFFERED": "1"},
        )
        if self._aborted:
            return
        lines = JsonLines(program)
        lines.send(
            {
                "type": "task",
                "version": VERSION,
                "task": {key: _clean(value) for key, value in asdict(task).items()},
                "arguments": self._arguments,
            }
        )
        try:
            reason = self._converse(program, lines, env)
            if reason:
                self._see_off(program, lines, env, reason)
            elif not self._aborted:
                self._judge_exit(program, env)
            elif not lines.received:
                env.log("[the program wrote no line; does it flush its standard output?]\n")
        finally:
            self._log(program, env)

    def abort(self) -> None:
        """Kill the program, from whatever thread."""
        self._aborted = True
        if self._program is not None:
            self._program.kill()

    def close(self) -> None:
        """End the program, and all that it started."""
        if self._program is not None:
            self._program.close()
            if self._program.left:
                log(f"[{self._program.left} of its processes could not be killed]\n")

    def _converse(self, program: Program, lines: JsonLines, env: Any) -> str:
        """Return why the episode is over; nothing if the program has ended before."""
        while (line := lines.receive()) is not None:
            said = _parse(line, lines.received)
            self._log(program, env)
            try:
                if said.get("thought"):
                    env.think(said["thought"])
                if said.get("usage"):
                    env.spend(**said["usage"])
                if "submit" in said:
                    result = env.submit(said["submit"])
                else:
                    result = env.step(said["action"])
            except BudgetExhausted:
                return "budget"
            observation, _, terminated, truncated, _ = result
            if truncated:
                return "budget"
            if terminated:
                solved = observation.reward == 1.0 and not _submits(said)
                return "solved" if solved else "submitted"
            lines.send(
                {
                    "type": "observation",
                    "observation": _clean(str(observation)),
                    "executed": observation.executed,
                    "status": observation.status,
                    "reward": observation.reward,
                    "turns_left": observation.turns_left,
                }
            )
        return ""

    def _see_off(self, program: Program, lines: JsonLines, env: Any, reason: str) -> None:
        """Tell the program that the episode is over, and let it exit by itself."""
        lines.send({"type": "end", "reason": reason})
        lines.close()
        status = program.wait(_GRACE)
        if status is None:
            program.kill()
            env.log(f"[killed: it still ran {_GRACE:g} s after the end of its input]\n")
        elif status and not self._aborted:
            env.log(f"[it {said_of_exit(status)} after the episode]\n")

    def _judge_exit(self, program: Program, env: Any) -> None:
        """A program that is done has submitted; anything else is its fault."""
        status = program.wait(_GRACE)
        if status == 0 or self._aborted:
            return
        self._log(program, env)
        if status is None:
            raise AgentError(
                "the program closed its standard output, and neither submitted nor exited"
            )
        raise AgentError(f"the program {said_of_exit(status)}{_last(self._printed)}")

    def _log(self, program: Program, env: Any) -> None:
        printed = program.stderr()
        if printed:
            self._printed = (self._printed + printed)[-8192:]
            env.log(printed)


def _parse(line: bytes, number: int) -> dict[str, Any]:
    """Return what a line says, checked, without what is null.

    Raises:
        AgentError: it is not a line of the protocol.
    """
    where = f"line {number} of the program's standard output"
    shown = repr(line[: 4 * _SHOWN].decode("utf-8", "replace").strip()[:_SHOWN])
    try:
        said = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not JSON"
        raise AgentError(
            f"{where} is {why}: {shown}; standard output is for the protocol, what else a program "
            "prints goes to standard error"
        ) from None
    if not isinstance(said, dict):
        raise AgentError(f'{where} is no object, as {{"action": "ls"}} is: {shown}')
    for key in said:
        if key not in _KEYS:
            raise AgentError(
                f"{where} has the key {key!r:.40}; allowed are {', '.join(_KEYS)}."
                + suggestion(key, _KEYS)
            )
    said = {key: value for key, value in said.items() if value is not None}
    if ("action" in said) == ("submit" in said):
        both = "both" if "action" in said else "neither"
        raise AgentError(
            f'{where} has {both} "action" {"and" if both == "both" else "nor"} "submit"; it has '
            f"one of them: {shown}"
        )
    for key in ("action", "submit", "thought"):
        _check_text(where, key, said.get(key, ""))
    if "usage" in said:
        said["usage"] = _usage(where, said["usage"])
    return said


def _check_text(where: str, key: str, value: object) -> None:
    if not isinstance(value, str):
        raise AgentError(f'{where}: "{key}" is a string, not {json.dumps(value):.60}')
    if _clean(value) != value:
        raise AgentError(
            f'{where}: "{key}" has half of a surrogate pair, which is no character: {value!r:.60}'
        )


def _usage(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AgentError(f'{where}: "usage" is an object, not {json.dumps(value):.60}')
    for key in value:
        if key not in _USAGE:
            raise AgentError(
                f'{where}: "usage" has the key {key!r:.40}; allowed are {", ".join(_USAGE)}.'
                + suggestion(key, _USAGE)
            )
    # Some languages know no whole numbers.
    return {
        key: int(number)
        if key != "cost" and isinstance(number, float) and number.is_integer()
        else number
        for key, number in value.items()
        if number is not None
    }


def _submits(said: Mapping[str, Any]) -> bool:
    return "submit" in said or said["action"].split(None, 1)[:1] == ["submit"]


def _clean(value: Any) -> Any:
    """Replace halves of surrogate pairs, which are no characters and which JSON readers refuse."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _last(printed: str) -> str:
    """Return the last lines of what was printed, as the end of a message of one line."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    return f": {' / '.join(lines[-_LAST_LINES:])}"[:400] if lines else ""
