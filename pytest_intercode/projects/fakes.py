"""Programs that a test answers for: which words get which answer.

A fake replaces a program in the sandbox of an agent. Its answers are looked up in the process of
the test, by the words that follow the program's name.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_intercode.core.call import ShimCall
from pytest_intercode.core.text import one_line
from pytest_intercode.errors import ConfigurationError

__all__ = ["Answer", "Fake", "FakeAnswer", "refuse", "resolve"]

__tracebackhide__ = True  # a report shows the line of the test that asked

_MAX_STATUS = 255  # the largest exit status
_MAX_SHOWN = 200  # characters of a call that a message quotes
_ANY = "*"


@dataclass(frozen=True)
class FakeAnswer:
    """What a fake prints, byte for byte, and its exit status.

    Attributes:
        stdout: what it prints on the standard output.
        stderr: what it then prints on the standard error.
        status: its exit status.
        refused: whether the call was not expected, and is reported as refused.

    Raises:
        ConfigurationError: a text is not a str, or the status is not a number from 0 to 255.
    """

    stdout: str = ""
    stderr: str = ""
    status: int = 0
    refused: bool = False

    def __post_init__(self) -> None:
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            if not isinstance(text, str):
                raise ConfigurationError(f"FakeAnswer({name}={text!r:.80}): give a str")
            try:
                text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                raise ConfigurationError(f"FakeAnswer({name}=...): {error}") from None
        if type(self.status) is not int or not 0 <= self.status <= _MAX_STATUS:
            raise ConfigurationError(
                f"FakeAnswer(status={self.status!r:.80}): give a number from 0 to {_MAX_STATUS}"
            )


Answer: TypeAlias = "str | FakeAnswer | Callable[[ShimCall], str | FakeAnswer]"
"""A text, which is printed with a line end; an exact answer; or a function that returns one of
these two."""


def refuse(call: ShimCall) -> FakeAnswer:
    """Refuse a call: an answer that prints one line on stderr, and exits with status 1."""
    words = one_line(shlex.join(call.arguments)[:_MAX_SHOWN]) or "no words"
    line = f"{call.program}: this test has no answer for: {words}\n"
    return FakeAnswer(stderr=line, status=1, refused=True)


class Fake:
    """A program that answers by the words that it is called with.

    A pattern consists of words as a shell reads them, with quotes: ``"repo view *"``. The word
    ``*`` stands for any number of words, even none; a ``*`` inside a word stands for any
    characters. All other words have to be the same, in the same order, without further words. The
    first pattern that matches decides.

    Args:
        answers: the answers by pattern.
        default: the answer to all other calls.
        reads_input: read the standard input to its end, as the program would; by default, if a word
            is ``-``, or ends with ``=-`` or ``@-``. Otherwise the input is left to what runs after
            the fake, such as the next ``read`` of a loop.

    Attributes:
        answers: the words of each pattern with its answer, in order.
        default: the answer to all other calls.
        reads_input: whether the standard input is read to its end; None if it depends on the words.

    Raises:
        ConfigurationError: a pattern is empty, cannot be split as a shell's words, or is given
            twice; an answer is not one.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer] | None = None,
        default: Answer = refuse,
        *,
        reads_input: bool | None = None,
    ) -> None:
        self.default = default
        self.reads_input = reads_input
        self._patterns: list[tuple[_Pattern, Answer]] = []
        names: dict[tuple[str, ...], str] = {}
        for text, answer in (answers or {}).items():
            words = _read_pattern(text)
            if words in names:
                raise ConfigurationError(
                    f"Fake(): the patterns {names[words]!r} and {text!r} are the same; leave one "
                    "out"
                )
            names[words] = text
            _check_answer(answer, repr(text))
            self._patterns.append((_Pattern(words), answer))
        _check_answer(default, "default")
        self.answers = tuple(zip(names, (answers or {}).values(), strict=True))

    def find_answer(self, arguments: Sequence[str]) -> Answer:
        """Return the answer to a call with these words."""
        for pattern, answer in self._patterns:
            if pattern.matches(arguments):
                return answer
        return self.default


def resolve(answer: Answer, call: ShimCall) -> FakeAnswer:
    """Return what an answer prints; if it is a function, call it.

    Raises:
        ConfigurationError: the function returns something else.
        Exception: what the function raises.
    """
    value = answer(call) if callable(answer) else answer
    if isinstance(value, FakeAnswer):
        return value
    if isinstance(value, str):
        return FakeAnswer(value if value.endswith("\n") or not value else f"{value}\n")
    raise ConfigurationError(
        f"the fake {call.program}: its function returns {value!r:.80} for "
        f"{one_line(str(call)[:_MAX_SHOWN])}; return a str or a FakeAnswer"
    )


def _check_answer(answer: object, place: str) -> None:
    if not (isinstance(answer, (str, FakeAnswer)) or callable(answer)):
        raise ConfigurationError(
            f"Fake(): the answer of {place} is {answer!r:.80}; give a str, a FakeAnswer or a "
            "function of the call"
        )


def _read_pattern(text: object) -> tuple[str, ...]:
    """Return the words of a pattern; several ``*`` in a row are one."""
    if not isinstance(text, str):
        raise ConfigurationError(f"Fake(): the pattern {text!r:.80} is not a str")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigurationError(f"Fake(): the pattern {text!r:.80}: {error}") from None
    if not words:
        raise ConfigurationError(
            "Fake(): a pattern is empty; give words such as 'repo view *', or default= for the "
            "remaining calls"
        )
    return tuple(
        word
        for index, word in enumerate(words)
        if not (word == _ANY and index and words[index - 1] == _ANY)
    )


class _Pattern:
    """Matches words in time proportional to their length, whatever an agent calls.

    Args:
        words: the words of the pattern.
    """

    def __init__(self, words: Sequence[str]) -> None:
        # The parts between the words `*`; each word in them is the list of texts between its stars.
        self._parts: list[list[list[str]]] = [[]]
        for word in words:
            if word == _ANY:
                self._parts.append([])
            else:
                self._parts[-1].append(word.split(_ANY))

    def matches(self, words: Sequence[str]) -> bool:
        """Whether these words match this pattern."""
        first, *middle = self._parts
        if not middle:
            return len(words) == len(first) and _begins(words, 0, first)
        last = middle.pop()
        start, end = len(first), len(words) - len(last)
        if start > end or not (_begins(words, 0, first) and _begins(words, end, last)):
            return False
        for part in middle:  # the leftmost match leaves most room for the following parts
            while start + len(part) <= end and not _begins(words, start, part):
                start += 1
            start += len(part)
            if start > end:
                return False
        return True


def _begins(words: Sequence[str], start: int, part: Sequence[list[str]]) -> bool:
    """Whether the words from a position on match a part of a pattern."""
    return all(_matches_word(texts, words[start + index]) for index, texts in enumerate(part))


def _matches_word(texts: Sequence[str], word: str) -> bool:
    """Whether a word consists of these texts, with any characters between them."""
    first, *middle = texts
    if not middle:
        return word == first
    last = middle.pop()
    start, end = len(first), len(word) - len(last)
    if start > end or not (word.startswith(first) and word.endswith(last)):
        return False
    for text in middle:
        index = word.find(text, start, end)
        if index < 0:
            return False
        start = index + len(text)
    return True
