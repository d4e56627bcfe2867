"""Answers to a test's questions about a run, and messages for assertions that fail because of one.

pytest rewrites ``assert run.ran("uv add")`` and shows the value of ``run.ran(...)`` on one line,
cut and escaped, which is too little for an answer. So an answer notes where its truth value was
last requested, and :func:`explain` gives an assertion that failed there a message of several lines.
The answer that was requested last decides ``and``, ``or``, ``not``, ``any()`` and ``all()``,
because each of them stops there. This also works without rewritten assertions.
"""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from pytest_intercode.core.text import clipped, escape_for_terminal, one_line, pluralize

__all__ = ["Answer", "Line", "Refusal", "explain", "number_lines"]

_MAX_EXPLANATION = 20_000  # characters
_MAX_LINES = 30  # of a list
_MAX_WIDTH = 60  # characters of a line's text
_MIN_WIDTH = 30
_MAX_ASKED = 100


class _Asked(threading.local):
    """The answers last requested in this thread, each with the file and the line."""

    def __init__(self) -> None:
        self.answers: deque[tuple[Answer, str, int]] = deque(maxlen=_MAX_ASKED)


_asked = _Asked()


class Refusal(NamedTuple):
    """A later assertion of a test, ``assert not run.NAME(ARGUMENTS)``, that has not run.

    Attributes:
        name: the method.
        arguments: its positional arguments.
        options: its keyword arguments.
        place: where the assertion is, for people: ``the next line`` or ``line 12``.
    """

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    place: str


class Line(NamedTuple):
    """A line of a list in an explanation.

    Attributes:
        text: the text of the line.
        facts: facts in parentheses.
        mark: why the line matters to the question; empty if it does not.
    """

    text: str
    facts: str = ""
    mark: str = ""


def number_lines(lines: Sequence[Line]) -> list[str]:
    """Return a numbered list in columns, indented, each line escaped and cut to a readable length.

    Of a long list, the lines with a mark and the last ones are shown.
    """
    positions = sorted(
        sorted(range(len(lines)), key=lambda index: (not lines[index].mark, -index))[:_MAX_LINES]
    )
    texts = {index: _cut(one_line(lines[index].text)) for index in positions}
    width = max([_MIN_WIDTH, *map(len, texts.values())])
    digits = len(str(len(lines)))
    rows, next_index = [], 0
    for index in positions:
        if index > next_index:
            rows.append(f"  {'':{digits}}  ... {pluralize(index - next_index, 'other')}")
        line = lines[index]
        facts = f"({one_line(line.facts)})" if line.facts else ""
        mark = f"    <- {one_line(line.mark)}" if line.mark else ""
        rows.append(f"  {index + 1:{digits}}  {texts[index]:{width}}  {facts}{mark}".rstrip())
        next_index = index + 1
    return rows


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 3]}..."


class Answer:
    """Yes or no, with a reason for people: true or false wherever a truth value is needed.

    Args:
        value: the answer.
        question: the question, as code: ``ran("uv add")``.
        explanation: why it is so: a line, and further ones that are indented below it. Or a
            function that makes it when it is needed, from the refusals that follow in the test.

    Attributes:
        value: the answer.
        question: the question.
    """

    __slots__ = ("_explanation", "question", "value")

    def __init__(
        self,
        value: bool,
        question: str,
        explanation: str | Callable[[Sequence[Refusal]], str],
    ) -> None:
        self.value = value
        self.question = question
        self._explanation = explanation

    @property
    def explanation(self) -> str:
        """Why it is so, escaped for terminals."""
        return self.explain()

    def explain(self, refusals: Sequence[Refusal] = ()) -> str:
        """Return why it is so, escaped for terminals.

        Args:
            refusals: the later refusals of the test.
        """
        text = self._explanation
        text = text if isinstance(text, str) else text(refusals)
        return clipped(escape_for_terminal(text), _MAX_EXPLANATION)

    def __bool__(self) -> bool:
        self._note(sys._getframe(1).f_code, sys._getframe(1).f_lineno)
        return self.value

    def __eq__(self, other: object) -> bool:
        self._note(sys._getframe(1).f_code, sys._getframe(1).f_lineno)
        if isinstance(other, Answer):
            return self.value == other.value
        return self.value == other if isinstance(other, bool) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"<{self.question}: {str(self.value).lower()}>"

    def _note(self, code: CodeType, line: int) -> None:
        """Note where the answer was requested, in this thread."""
        _asked.answers.append((self, code.co_filename, line))


def explain(error: BaseException | None) -> None:
    """Give an assertion that failed because of an answer a message that says why.

    A plugin calls this after each phase of a test, before a report is made from the error. The
    message has the assertion, and below it the explanation of the answer that decided it.

    Args:
        error: what the test raised; None if it raised nothing. Only an :class:`AssertionError` that
            was raised where an answer was last requested is changed.
    """
    questions = list(_asked.answers)
    _asked.answers.clear()
    if not questions or not isinstance(error, AssertionError) or error.__traceback__ is None:
        return
    file, line = _origin(error.__traceback__)
    block, index = _find_assertion(file, line)
    if block is None:
        return
    statement = block[index]
    assert isinstance(statement, ast.Assert)
    lines_of_statement = range(statement.lineno, (statement.end_lineno or line) + 1)
    # pytest requests the first answers again while it describes "and" and "or".
    answers = {
        id(answer): answer
        for answer, asked_file, asked_line in questions
        if asked_file == file and asked_line in lines_of_statement
    }
    if not answers:
        return
    answer = list(answers.values())[-1]
    lines = [_message(error, statement), f"assert {_source(file, statement.test)}"]
    if not _is_plain(statement.test):
        lines.append(f"  {answer!r}")
    explanation = answer.explain(list(_refusals(block, index, statement.test)))
    lines.append(textwrap.indent(explanation, "  "))
    error.args = ("\n".join(filter(None, lines)),)


def _origin(trace: TracebackType) -> tuple[str, int]:
    """Return where an exception was raised: the file and the line."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno


def _find_assertion(file: str, line: int) -> tuple[list[ast.stmt] | None, int]:
    """Return the block of the assertion on a line, and its index there."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None, 0
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for index, statement in enumerate(block if isinstance(block, list) else ()):
                if not isinstance(statement, ast.Assert):
                    continue
                if statement.lineno <= line <= (statement.end_lineno or line):
                    return block, index
    return None, 0


def _message(error: AssertionError, statement: ast.Assert) -> str:
    """Return the test's own message, without what pytest added below it."""
    return "" if statement.msg is None else str(error).partition("\nassert ")[0]


def _source(file: str, node: ast.expr) -> str:
    source = ast.get_source_segment("".join(linecache.getlines(file)), node) or ast.unparse(node)
    return source if "\n" not in source else " ".join(source.split())


def _is_plain(test: ast.expr) -> bool:
    """Whether the assertion itself shows the question, such as ``run.ran("ls")``."""
    call = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(call, ast.Call) and _constants(call) is not None


def _constants(call: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of a method's call; None if they are not all literals."""
    if not isinstance(call.func, ast.Attribute):
        return None
    try:
        options = {
            keyword.arg or "**": ast.literal_eval(keyword.value) for keyword in call.keywords
        }
        return tuple(map(ast.literal_eval, call.args)), options
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _refusals(block: Sequence[ast.stmt], index: int, test: ast.expr) -> Iterator[Refusal]:
    """Yield the later assertions in the same block that something was not done.

    Args:
        block: the statements.
        index: the position of the assertion that failed.
        test: what it asserts; only questions about the same run are related to it.
    """
    if not (isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute)):
        return
    run = ast.dump(test.func.value)
    next_line = (block[index].end_lineno or 0) + 1
    for statement in block[index + 1 :]:
        if not (isinstance(statement, ast.Assert) and isinstance(statement.test, ast.UnaryOp)):
            continue
        call = statement.test.operand
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        constants = _constants(call)
        if constants is not None and ast.dump(call.func.value) == run:
            is_next = statement.lineno == next_line
            place = "the next line" if is_next else f"line {statement.lineno}"
            yield Refusal(call.func.attr, *constants, place)
