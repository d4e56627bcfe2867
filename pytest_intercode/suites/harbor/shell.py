"""The simple commands of a shell script, in the order of its text. Pure; nothing is run.

The parser handles quotes, comments, continued lines, operators, redirections, here-documents,
substitutions and variables that the script itself sets to plain text. A part of a word that is only
known at run time is replaced by :data:`UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["UNKNOWN", "Command", "simple_commands"]

UNKNOWN = "\0"
"""The placeholder for an unknown part of a word."""

_OPERATOR = re.compile(r"&&|\|\||;;&?|;&|\|&|[;|&()\n]")
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|<>|>>|>\||[<>]&|[<>](?!\()")
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?::?[-=](.*))?", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[^}]*\})")
_SETTING = ("export", "local", "readonly", "declare", "typeset")
_RESERVED = {"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "time", "fi"}
_MAX_DEPTH = 20  # levels of nested substitutions
_MAX_VALUE = 1024  # characters of a known variable; each may be twice as long as the one before


@dataclass
class Command:
    """One command: its words, redirections and here-documents.

    Attributes:
        words: its words, without reserved words and variables that are set only for it.
        operator: the operator before it, such as ``||``; empty at the beginning.
        targets: the files of its redirections.
        texts: its here-documents.
    """

    words: list[str] = field(default_factory=list)
    operator: str = ""
    targets: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def simple_commands(script: str, variables: Mapping[str, str] | None = None) -> Iterator[Command]:
    """Yield the commands of a script, including those in substitutions.

    Args:
        script: the script.
        variables: the known variables of its environment.
    """
    yield from _Reader(script, dict(variables or {}), 0).commands()


class _Reader:
    """Reads one script, or the text of one substitution.

    Args:
        text: the text.
        variables: the known variables; it is kept up to date.
        depth: in how many substitutions the text is nested.
    """

    def __init__(self, text: str, variables: dict[str, str], depth: int) -> None:
        self._text = text
        self._index = 0
        self._variables = variables
        self._depth = depth
        self._inner: list[Command] = []  # commands of substitutions in the current command
        self._documents: list[tuple[Command, str, bool]] = []  # they begin in the next line

    def commands(self) -> Iterator[Command]:
        """Yield the commands with words or here-documents, and keep track of variables."""
        command = Command()
        while self._index < len(self._text):
            operator = self._step(command)
            if not operator:
                continue
            yield from self._finish(command)
            # A line may end after an operator.
            continues = operator == "\n" and not command.words and not command.targets
            command = Command(operator=command.operator if continues else operator)
        yield from self._finish(command)

    def _finish(self, command: Command) -> Iterator[Command]:
        inner, self._inner = self._inner, []
        yield from inner
        self._set_variables(command)
        if command.words or command.texts:
            yield command

    def _step(self, command: Command) -> str:
        """Read a word, a redirection or an operator; return the operator."""
        text, start = self._text, self._index
        if text[start] in " \t\r":
            self._index += 1
        elif text.startswith("\\\n", start):
            self._index += 2
        elif text[start] == "#":
            end = text.find("\n", start)
            self._index = len(text) if end < 0 else end
        elif match := _REDIRECTION.match(text, start):
            self._redirect(command, match[0])
        elif match := _OPERATOR.match(text, start):
            self._index = match.end()
            if match[0] == "\n":
                self._read_documents()
            return match[0]
        else:
            words = self._word()
            number = words[0].isdecimal() if len(words) == 1 else False
            if not (number and text[start : self._index].isdecimal() and self._at_redirection()):
                command.words += words
        return ""

    def _at_redirection(self) -> bool:
        match = _REDIRECTION.match(self._text, self._index)
        return match is not None and not match[0].startswith("&")

    def _redirect(self, command: Command, operator: str) -> None:
        self._index += len(operator)
        while self._text.startswith((" ", "\t"), self._index):
            self._index += 1
        if self._index < len(self._text) and self._text[self._index] not in "\n;|&()":
            target = " ".join(self._word())
            if operator in ("<<", "<<-"):
                self._documents.append((command, target, operator == "<<-"))
            else:
                command.targets.append(target)

    def _read_documents(self) -> None:
        """Read the here-documents that were begun in the last line."""
        for command, end, stripped in self._documents:
            lines = []
            while self._index < len(self._text):
                stop = self._text.find("\n", self._index)
                stop = len(self._text) if stop < 0 else stop
                line, self._index = self._text[self._index : stop], stop + 1
                if (line.lstrip("\t") if stripped else line).rstrip("\r") == end:
                    break
                lines.append(line)
            command.texts.append("\n".join(lines))
        self._documents = []

    # -- words

    def _word(self) -> list[str]:
        """Read a word; if it is only a variable, it may expand to several words."""
        start, parts = self._index, ""
        while self._index < len(self._text):
            char = self._text[self._index]
            if char in " \t\r\n;|&)" or (char == "(" and self._index > start):
                break
            if char in "<>" and not self._text.startswith("(", self._index + 1):
                break
            parts += self._part(char)
        source = self._text[start : self._index]
        if _REFERENCE.fullmatch(source):
            return parts.split()
        return [parts]

    def _part(self, char: str) -> str:
        if char == "\\":
            self._index += 2
            escaped = self._text[self._index - 1 : self._index]
            return "" if escaped == "\n" else escaped
        if char == "'":
            return self._until("'")
        if char == '"':
            return self._quoted()
        if char == "$":
            return self._expansion()
        if char == "`":
            self._run(self._until("`"))
            return UNKNOWN
        if char in "<>(":  # a process substitution
            self._index += 1 if char in "<>" else 0
            self._run(self._bracketed("(", ")"))
            return UNKNOWN
        self._index += 1
        return char

    def _until(self, end: str) -> str:
        """Return the text between the current character and the next ``end``."""
        start = self._index + 1
        stop = self._text.find(end, start)
        stop = len(self._text) if stop < 0 else stop
        self._index = stop + 1
        return self._text[start:stop]

    def _quoted(self) -> str:
        parts = ""
        self._index += 1
        while self._index < len(self._text) and self._text[self._index] != '"':
            char = self._text[self._index]
            if char == "\\" and self._text[self._index + 1 : self._index + 2] in (
                '"',
                "\\",
                "$",
                "`",
            ):
                parts += self._text[self._index + 1]
                self._index += 2
            elif self._text.startswith("\\\n", self._index):
                self._index += 2
            elif char in "$`":
                parts += self._part(char)
            else:
                parts += char
                self._index += 1
        self._index += 1
        return parts

    def _expansion(self) -> str:
        """Return the expansion that a dollar sign begins."""
        text = self._text
        self._index += 1
        following = text[self._index : self._index + 1]
        if following == "'":
            return self._until("'")
        if following == "(":
            inner = self._bracketed("(", ")")
            if not inner.startswith("("):  # if it does, it is arithmetic
                self._run(inner)
            return UNKNOWN
        if following == "{":
            match = _BRACED.fullmatch(self._bracketed("{", "}"))
            return self._variables.get(match[1], match[2] or UNKNOWN) if match else UNKNOWN
        if match := _NAME.match(text, self._index):
            self._index = match.end()
            return self._variables.get(match[0], UNKNOWN)
        if following and following in "0123456789@*#?$!-":
            self._index += 1
            return UNKNOWN
        return "$"

    def _bracketed(self, opening: str, closing: str) -> str:
        """Return the text between brackets, the first of which is the current character."""
        start, depth = self._index + 1, 0
        while self._index < len(self._text):
            char = self._text[self._index]
            if char == "\\":
                self._index += 1
            elif char == "'":
                self._until("'")
                continue
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
            self._index += 1
            if not depth:
                return self._text[start : self._index - 1]
        self._index = len(self._text)
        return self._text[start:]

    def _run(self, script: str) -> None:
        if self._depth < _MAX_DEPTH:
            reader = _Reader(script, dict(self._variables), self._depth + 1)
            self._inner += reader.commands()

    # -- variables

    def _set_variables(self, command: Command) -> None:
        """Remove reserved words and assignments, and set variables for the following commands."""
        words = command.words
        while words and words[0] in _RESERVED:
            words.pop(0)
        settings = {}
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            settings[match[1]] = match[2]
            words.pop(0)
        if words and words[0] in _SETTING:
            pairs = (_ASSIGNMENT.fullmatch(word) for word in words)
            settings = {pair[1]: pair[2] for pair in pairs if pair}
        elif words:  # the assignments are only for this command
            return
        plain_settings = {
            name: value
            for name, value in settings.items()
            if UNKNOWN not in value and len(value) <= _MAX_VALUE
        }
        for name in settings.keys() - plain_settings.keys():
            self._variables.pop(name, None)
        self._variables.update(plain_settings)
