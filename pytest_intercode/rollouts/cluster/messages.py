"""Messages between driver and nodes: JSON objects in bytes, of limited size; never a pickle.

A node runs agents, so the driver does not trust its messages: a malformed one raises
:class:`BadMessage`.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pytest_intercode import errors
from pytest_intercode.agents.protocol import NoRecording
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import IntercodeError, JudgeError, RolloutCancelled
from pytest_intercode.results.format import to_line
from pytest_intercode.rollouts.executor import Phase, PhaseName
from pytest_intercode.rollouts.output import TRUNCATION
from pytest_intercode.rollouts.records import RecordBuilder

__all__ = [
    "BadMessage",
    "Message",
    "decode",
    "encode",
    "encode_answer",
    "error_from",
    "error_of",
    "line_of",
    "phases_of",
    "reading",
    "whole",
]

Message: TypeAlias = "dict[str, Any]"

_MAX_MESSAGE = 64 * 1024 * 1024  # bytes of a message from a node
_MAX_RECORD = _MAX_MESSAGE // 2  # bytes of a record in it; a larger one is its agent's fault
_MAX_ERROR = 20_000  # characters
_MAX_NUMBER = 2**53
_PHASES: tuple[PhaseName, ...] = ("prepare", "run", "close")

_ERRORS: dict[str, type[Exception]] = {
    name: error_class
    for name in errors.__all__
    if issubclass(error_class := getattr(errors, name), IntercodeError)
}
_ERRORS["NoRecording"] = NoRecording


class BadMessage(Exception):
    """A node sent something that is not a valid message."""


# The errors of reading a malformed message, such as one with too large a number or a too deep list.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Context for parsing a node's message; do nothing else in it.

    Other code of the driver may raise the same errors, which would then count as a node's fault.

    Raises:
        BadMessage: the message is malformed.
    """
    try:
        yield
    except _MALFORMED as error:
        raise BadMessage(f"{error!r:.200}") from None


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as bytes."""
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def line_of(record: EpisodeRecord) -> str:
    """Return the line of a record, reduced if it is too large for a message."""
    line = to_line(record)
    size = len(encode({"line": line}))  # in a message its quotes are escaped once more
    if size > _MAX_RECORD:
        line = to_line(RecordBuilder.too_large(record, size, _MAX_RECORD))
    return line


def encode_answer(message: Message, output: Sequence[Any]) -> bytes:
    """Return a node's answer to an attempt as bytes.

    Args:
        message: the answer.
        output: the rollout's output; it is left out if it is too large for a message, in which
            each character may take twelve bytes.
    """
    data = encode({**message, "output": output})
    if len(data) > _MAX_MESSAGE:
        data = encode({**message, "output": [["call", "stdout", TRUNCATION]]})
    return data


def decode(data: object) -> Message:
    """Parse the bytes of a message.

    Raises:
        BadMessage: they are not a message, or are more than 64 MiB.
    """
    if not isinstance(data, bytes) or len(data) > _MAX_MESSAGE:
        raise BadMessage("it has no bytes, or too many")
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise BadMessage("not an object")
    return message


def whole(number: object) -> int:
    """Check that a value of a message is a whole number that is not negative, and return it.

    Raises:
        BadMessage: it is not, or is too large.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _MAX_NUMBER:
        raise BadMessage(f"{number!r:.40} is not a whole number")
    return number


def phases_of(message: Message) -> dict[PhaseName, Phase]:
    """Return the times of a rollout's phases.

    Raises:
        BadMessage: they are not times.
    """
    phases = {}
    try:
        for name in _PHASES:
            if name in (message.get("phases") or {}):
                began, seconds = map(float, message["phases"][name])
                if not (math.isfinite(began) and math.isfinite(seconds)):
                    raise BadMessage(f"{name} took {seconds} s from {began}")
                phases[name] = Phase(began, seconds)
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise BadMessage(f"times of phases: {error}") from None
    return phases


def error_of(error: BaseException) -> Message:
    """Return an error in the form that :func:`error_from` reads."""
    names = (base.__name__ for base in type(error).__mro__)
    kind = next((name for name in names if name in _ERRORS), "")
    try:
        text = str(error)
    except Exception:  # its class may be the agent's
        text = "it raised when asked for its text"
    if not kind:
        text = f"{type(error).__name__}: {text}"
    message = {"kind": kind, "text": text[:_MAX_ERROR]}
    if isinstance(error, IntercodeError) and error.test_output:
        message["test_output"] = error.test_output[:_MAX_ERROR]
    if isinstance(error, JudgeError) and error.record is not None:
        message["line"] = line_of(error.record)
    return message


def error_from(value: object, node: str) -> Exception:
    """Return the error that a node reports: one of ours, or a RuntimeError.

    Args:
        value: the result of :func:`error_of` on the node.
        node: the node's name, for people.
    """
    fields = value if isinstance(value, dict) else {}
    kind, text = fields.get("kind"), str(fields.get("text", ""))[:_MAX_ERROR]
    cls = _ERRORS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return RuntimeError(f"on node {node}: {text}")
    if cls is RolloutCancelled:
        return RolloutCancelled(text)
    error = cls(text)
    if isinstance(error, IntercodeError):
        error.test_output = str(fields.get("test_output", ""))[:_MAX_ERROR]
    return error
