"""The commands that an agent ran, their order, and a test's assertions about them.

There are three sources of commands: the actions of an agent that acts through the environment
(``action``), the shell tool calls of an agent that lives in the sandbox, as the gateway saw them
(``gateway``), and programs that report their calls themselves (``shim``). The first two are texts,
which ``projects/shell.py`` parses; they do not contain what a script runs. A shim sees that, too.
"""

from __future__ import annotations

import re as regular_expressions
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, Protocol, TypeAlias, overload

from pytest_intercode.core.text import pluralize
from pytest_intercode.core.turn import Turn
from pytest_intercode.projects.answer import Answer, Line, Refusal, number_lines
from pytest_intercode.projects.programs import base_name, begins_with
from pytest_intercode.projects.shell import parse_shell
from pytest_intercode.projects.shell_status import StatusLink

__all__ = ["Command", "Commands", "ProgramCall", "Source"]

__tracebackhide__ = True  # a report shows the line of the test that asked

Source: TypeAlias = Literal["action", "gateway", "shim"]

_ORIGINS: dict[Source, str] = {
    "action": "",
    "gateway": "from its calls of tools, as the gateway saw them; not what a script ran",
    "shim": "from programs that report their calls",
}


class ProgramCall(Protocol):
    """A call of a program that reports its calls, as in ``projects/shims.py``."""

    @property
    def program(self) -> str:
        """The program's name."""

    @property
    def arguments(self) -> Sequence[str]:
        """Its arguments."""

    @property
    def status(self) -> int | None:
        """Its exit status."""

    @property
    def seconds(self) -> float | None:
        """How long it took."""


@dataclass(frozen=True)
class Command:
    """A command that an agent ran: a simple command, as Bash calls it.

    Attributes:
        words: its words without quotes. For ``sudo pip install x``, they are ``pip install x``.
        text: the command as the agent wrote it.
        status: its exit status; None if it is not known, as in the middle of a pipeline.
        seconds: the wall time of its turn; None if that is not known, or if other commands also ran
            in the turn.
        turn: the turn's number, from 1; 0 for a call that a program reported.
        source: ``action``, ``gateway`` or ``shim``.
    """

    words: tuple[str, ...]
    text: str
    status: int | None
    seconds: float | None
    turn: int
    source: Source
    _readings: tuple[tuple[str, ...], ...] = field(default=(), repr=False, compare=False)
    _whole: str = field(default="", repr=False, compare=False)  # the text of the turn

    def begins_with(self, words: Sequence[str]) -> bool:
        """Whether it, or the command that it runs, begins with these words."""
        return any(begins_with(reading, words) for reading in self._readings or (self.words,))

    @property
    def facts(self) -> str:
        """Its exit status and its seconds, as far as they are known, as text."""
        status = "?" if self.status is None else str(self.status)
        return status if self.seconds is None else f"{status}, {self.seconds:.1f} s"


class Commands(Sequence[Command]):
    """The commands of one run, in order.

    Args:
        commands: all commands; those of turns before those that programs reported.
        complete: whether nothing is missing; False if a text could not be parsed to its end.
    """

    def __init__(self, commands: Iterable[Command] = (), *, complete: bool = True) -> None:
        self._commands = tuple(commands)
        self.complete = complete

    @classmethod
    def of(cls, turns: Iterable[Turn], calls: Iterable[ProgramCall] = ()) -> Commands:
        """Return the commands of an episode's turns.

        Args:
            turns: the turns. Those that submitted or passed ran nothing.
            calls: the calls that programs reported themselves.

        Raises:
            ConfigurationError: the parser is not installed.
        """
        commands: list[Command] = []
        complete = True
        for number, turn in enumerate(turns, 1):
            if not turn.passed and turn.arguments is None:
                in_turn, is_complete = _commands_of(turn, number)
                commands += in_turn
                complete = complete and is_complete
        for call in calls:
            words = (call.program, *call.arguments)
            commands.append(Command(words, shlex.join(words), call.status, call.seconds, 0, "shim"))
        return cls(commands, complete=complete)

    @overload
    def __getitem__(self, index: int) -> Command: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Command]: ...
    def __getitem__(self, index: int | slice) -> Command | Sequence[Command]:
        """Return a command, or some of them."""
        return self._commands[index]

    def __len__(self) -> int:
        return len(self._commands)

    def __repr__(self) -> str:
        return f"<{pluralize(len(self), 'command')}>"

    # -- questions

    def ran(
        self,
        words: str = "",
        *,
        re: str | regular_expressions.Pattern[str] | None = None,
        ok: bool = False,
    ) -> Answer:
        r"""Return whether the agent ran a command.

        ``uv add`` means every command that begins with these words: ``uv add requests``,
        ``cd app && uv add x``, ``bash -c 'uv add x'``, ``sudo /usr/bin/uv add x``,
        ``uv --quiet add x``. A program is compared without its folders. ``python -m pip install``
        and ``pip3 install`` do not begin with ``pip install``, and ``uv run pytest`` is a command
        of ``uv``: to find all of them, use a regular expression.

        Args:
            words: the words at the beginning of a command, as a shell would split them.
            re: instead of words, a regular expression that matches somewhere in the text of a
                command, or of the whole turn in which it ran: ``curl .*\| *sh``.
            ok: count only commands whose exit status is 0. A command whose status is not known, as
                in the middle of a pipeline, does not count.

        Raises:
            TypeError: neither words nor a regular expression are given, or both; words are a list.
            ValueError: the regular expression is not one.
        """
        _check_texts("ran", words)
        if bool(words.strip()) == (re is not None):
            raise TypeError("ran() takes either the words at the beginning of a command, or re=")
        question = f'ran("{words}"' if re is None else f"ran(re={_pattern_text(re)!r}"
        question += ", ok=True)" if ok else ")"
        matching = self._find(words, re)
        good = [command for command in matching if not ok or command.status == 0]
        if good:
            return Answer(True, question, lambda _: self._explain_ran(good))
        marks = self._marks_near(matching, words)
        return Answer(False, question, lambda refusals: self._explain_not(marks, refusals))

    def order(self, *commands: str) -> Answer:
        """Return whether the agent ran these commands in this order, with any others in between.

        Args:
            commands: the words at the beginning of each, as :meth:`ran` takes them.

        Raises:
            TypeError: fewer than two commands are given, or something other than texts.
        """
        _check_texts("order", *commands)
        if len(commands) < 2 or not all(text.strip() for text in commands):
            raise TypeError("order() takes at least two commands")
        question = f"order({', '.join(map(_quoted, commands))})"
        # Calls that programs reported cannot be ordered among the turns.
        from_turns = [command for command in self if command.source != "shim"]
        from_shims = [command for command in self if command.source == "shim"]
        matches = [_in_order(of_source, commands) for of_source in (from_turns, from_shims)]
        best = max(matches, key=len)
        marks = {id(command): _quoted(text) for command, text in zip(best, commands, strict=False)}
        if len(best) == len(commands):
            return Answer(True, question, lambda refusals: self._explain_not(marks, refusals))
        missing = commands[len(best)]
        for command in self._find(missing):
            marks.setdefault(id(command), f"{_quoted(missing)}, but too early")
        note = f"{_quoted(missing)} did not run"
        note += f" after {_quoted(commands[len(best) - 1])}" if best else ""
        return Answer(
            False, question, lambda refusals: f"{note}; {self._explain_not(marks, refusals)}"
        )

    def _find(
        self, words: str, re: str | regular_expressions.Pattern[str] | None = None
    ) -> list[Command]:
        """Return the commands that begin with words, or whose text a regular expression matches.

        If a regular expression matches no single command of a turn but the turn's text, such as one
        for a pipeline, all commands of the turn are returned.
        """
        if re is None:
            beginning = split_words(words)
            return [command for command in self if command.begins_with(beginning)]
        try:
            pattern = regular_expressions.compile(re)
        except regular_expressions.error as error:
            raise ValueError(f"ran(): re={re!r:.80} is not a regular expression: {error}") from None
        matching = {id(command) for command in self if pattern.search(command.text)}
        turns = {command.turn for command in self if id(command) in matching}
        for turn, commands in groupby(self, key=lambda command: command.turn):
            in_turn = list(commands)
            if turn and turn not in turns and pattern.search(in_turn[0]._whole):
                matching |= set(map(id, in_turn))
        return [command for command in self if id(command) in matching]

    # -- explanations

    def _marks_near(self, matching: Sequence[Command], words: str) -> dict[int, str]:
        """Return marks on commands that nearly match, by the identities of the commands.

        Args:
            matching: those that match, but did not succeed as far as is known.
            words: the words that were asked for.
        """
        marks = {
            id(command): "its exit status is not known; watch= would tell it"
            if command.status is None
            else f"it ended with {command.status}"
            for command in matching
        }
        beginning = split_words(words)
        if beginning:
            for command in self:
                mark = _near(command, beginning)
                if mark:
                    marks.setdefault(id(command), mark)
        return marks

    def _explain_ran(self, commands: Sequence[Command]) -> str:
        first = commands[0]
        turn = f" in turn {first.turn}" if first.turn else ""
        status = "an unknown status" if first.status is None else f"status {first.status}"
        header = f"the agent ran it{turn}, with {status}:"
        return self._list(header, {id(command): "this one" for command in commands})

    def _explain_not(self, marks: dict[int, str], refusals: Sequence[Refusal]) -> str:
        marks = dict(marks)
        for refusal in refusals:
            for command in self._refused(refusal):
                marks.setdefault(id(command), f"not allowed by {refusal.place}")
        if not self._commands:
            return "the agent ran no commands"
        return self._list(f"the agent ran {pluralize(len(self), 'command')}:", marks)

    def _refused(self, refusal: Refusal) -> list[Command]:
        """Return the commands that a later assertion of the test does not allow."""
        if refusal.name != "ran" or refusal.options.get("ok"):
            return []
        try:
            [words] = refusal.arguments or ("",)
            return self._find(words, refusal.options.get("re"))
        except (TypeError, ValueError, AttributeError):  # that line will raise it itself
            return []

    def _list(self, header: str, marks: dict[int, str]) -> str:
        lines = [Line(command.text, command.facts, marks.get(id(command), "")) for command in self]
        origins = dict.fromkeys(_ORIGINS[command.source] for command in self)
        notes = [f"({origin})" for origin in origins if origin]
        if not self.complete:
            notes.append("(part of what it ran could not be parsed as shell text)")
        return "\n".join([header, *number_lines(lines), *notes])


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a test's text, as a shell splits them."""
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an apostrophe
        return tuple(text.split())


def _commands_of(turn: Turn, number: int) -> tuple[list[Command], bool]:
    """Return the commands of a turn, and whether they are complete."""
    if not turn.tool and turn.action.strip().split(None, 1)[:1] in ([], ["submit"]):
        return [], True
    text = parse_shell(turn.action)
    called = {base_name(reading[0]) for command in text.commands for reading in command.readings}
    ran = [
        command for command in text.commands if not command.function or command.function in called
    ]
    seconds = turn.seconds if turn.seconds and len(ran) == 1 else None
    source: Source = "gateway" if turn.tool else "action"
    return [
        Command(
            words=command.words,
            text=command.text,
            status=_status(turn.status, command.link),
            seconds=seconds,
            turn=number,
            source=source,
            _readings=command.readings,
            _whole=turn.action,
        )
        for command in ran
    ], text.complete


def _check_texts(function: str, *values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(
                f"{function}() takes a command as one text, such as 'git add', found {value!r:.60}"
            )


def _status(status: int | None, link: StatusLink) -> int | None:
    """Return a command's exit status, if the status of its text determines it."""
    if link == "equal" or (link == "success" and status == 0):
        return status
    return None


def _pattern_text(pattern: str | regular_expressions.Pattern[str]) -> str:
    return pattern if isinstance(pattern, str) else pattern.pattern


def _in_order(commands: Iterable[Command], texts: Sequence[str]) -> list[Command]:
    """Return the first commands that begin with the texts, each after the previous one."""
    matches: list[Command] = []
    beginnings = list(map(split_words, texts))
    for command in commands:
        if len(matches) < len(texts) and command.begins_with(beginnings[len(matches)]):
            matches.append(command)
    return matches


def _near(command: Command, beginning: Sequence[str]) -> str:
    """Return why a command nearly begins with these words; empty if it does not."""
    words, beginning, text = list(command.words), list(beginning), " ".join(beginning)
    length = len(beginning)
    if begins_with(words, beginning[:1]):
        return f"{_quoted(beginning[0])}, but not {_quoted(text)}" if length > 1 else ""
    if any(
        tuple(words[start : start + length]) == tuple(beginning) for start in range(1, len(words))
    ):
        return f"{_quoted(text)} is not at its beginning"
    return ""


def _quoted(text: str) -> str:
    return f'"{text}"'
