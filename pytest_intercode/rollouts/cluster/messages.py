"""What driver and nodes send each other: JSON objects, in bytes, with a limit; never a pickle.

One piece of bytes holds any number of messages, each a length in four bytes and its JSON. A node
runs agents, so what comes from one is read with care: what is not a message raises
:class:`BadMessage`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from pytest_intercode import errors
from pytest_intercode.agents.protocol import NoRecording
from pytest_intercode.errors import IntercodeError, RolloutCancelled

__all__ = [
    "BadMessage",
    "Message",
    "decode",
    "encode",
    "error_from",
    "error_of",
    "whole",
]

Message: TypeAlias = "dict[str, Any]"

_MAX_MESSAGE = 64 * 1024 * 1024  # bytes of a message from a node; of a record, half of that
_LENGTH = 4
_MAX_ERROR = 20_000  # characters
_MAX_NUMBER = 2**53

_ERRORS: dict[str, type[Exception]] = {
    name: error_class
    for name in errors.__all__
    if issubclass(error_class := getattr(errors, name), IntercodeError)
}
_ERRORS["NoRecording"] = NoRecording


class BadMessage(Exception):
    """Bytes of a node that are not messages."""


def encode(message: Message, **encoded: bytes) -> bytes:
    """Return a message as bytes; several of them may be put one after another.

    Args:
        message: its fields, at least one.
        encoded: further fields, whose values are JSON already.
    """
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    for name, value in encoded.items():
        body = b'%b,"%b":%b}' % (body[:-1], name.encode("ascii"), value)
    return len(body).to_bytes(_LENGTH, "big") + body


def decode(data: bytes) -> Iterator[Message]:
    """Yield the messages of some bytes.

    Raises:
        BadMessage: they are not messages, or one is larger than 64 MiB.
    """
    start = 0
    while start < len(data):
        size = int.from_bytes(data[start : start + _LENGTH], "big")
        start += _LENGTH
        if size > _MAX_MESSAGE or start + size > len(data):
            raise BadMessage(f"a message of {size:,} bytes")
        try:
            message = json.loads(data[start : start + size])
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"not JSON: {error}") from None
        if not isinstance(message, dict):
            raise BadMessage("not an object")
        yield message
        start += size


def whole(message: Message, name: str) -> int:
    """Return a field of a message that is a whole number, of which none is below zero.

    Raises:
        BadMessage: it is not, or is too large.
    """
    number = message.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _MAX_NUMBER:
        raise BadMessage(f"{name} is {number!r:.40}")
    return number


def error_of(error: BaseException) -> Message:
    """Return an error as what :func:`error_from` reads."""
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
    return message


def error_from(value: object, node: str) -> Exception:
    """Return the error that a node reports: one of ours, or a RuntimeError.

    Args:
        value: what :func:`error_of` made there.
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
