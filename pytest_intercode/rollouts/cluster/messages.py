"""What driver and nodes say to each other: JSON objects, in bytes, with a limit; never a pickle.

One piece of bytes holds any number of messages, each a length in four bytes and its JSON. A node
runs agents, so whatever comes from one is read with care: a message that is none raises
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
    "LARGEST",
    "BadMessage",
    "Message",
    "decode",
    "encode",
    "error_from",
    "error_of",
    "whole",
]

Message: TypeAlias = "dict[str, Any]"

LARGEST = 64 * 1024 * 1024
"""Bytes that a message from a node may have; a record that is larger is its agent's fault."""

_LENGTH = 4
_LONGEST_ERROR = 20_000  # characters
_MOST = 2**53

_ERRORS: dict[str, type[Exception]] = {
    name: found
    for name in errors.__all__
    if issubclass(found := getattr(errors, name), IntercodeError)
}
_ERRORS["NoRecording"] = NoRecording


class BadMessage(Exception):
    """Bytes of a node that are no messages."""


def encode(message: Message, **written: bytes) -> bytes:
    """Return a message as bytes; several of them may be put one after another.

    Args:
        message: its fields, at least one.
        written: further fields, whose values are JSON already.
    """
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    for name, value in written.items():
        body = b'%b,"%b":%b}' % (body[:-1], name.encode("ascii"), value)
    return len(body).to_bytes(_LENGTH, "big") + body


def decode(data: bytes) -> Iterator[Message]:
    """Yield the messages of some bytes.

    Raises:
        BadMessage: they are none, or one is larger than :data:`LARGEST`.
    """
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + _LENGTH], "big")
        at += _LENGTH
        if size > LARGEST or at + size > len(data):
            raise BadMessage(f"a message of {size:,} bytes")
        try:
            message = json.loads(data[at : at + size])
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"no JSON: {error}") from None
        if not isinstance(message, dict):
            raise BadMessage("no object")
        yield message
        at += size


def whole(message: Message, name: str) -> int:
    """Return a field of a message that is a whole number, which none of ours is below zero.

    Raises:
        BadMessage: it is none, or one of no sensible size.
    """
    number = message.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < _MOST:
        raise BadMessage(f"{name} is {number!r:.40}")
    return number


def error_of(error: BaseException) -> Message:
    """Return an error as what :func:`error_from` reads."""
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS), "")
    try:
        text = str(error)
    except Exception:  # its class may be the agent's
        text = "it raised when asked for its text"
    if not kind:
        text = f"{type(error).__name__}: {text}"
    message = {"kind": kind, "text": text[:_LONGEST_ERROR]}
    if isinstance(error, IntercodeError) and error.test_output:
        message["test_output"] = error.test_output[:_LONGEST_ERROR]
    return message


def error_from(said: object, node: str) -> Exception:
    """Return the error that a node speaks of: one of ours, or a RuntimeError.

    Args:
        said: what :func:`error_of` made there.
        node: the node's name, for people.
    """
    fields = said if isinstance(said, dict) else {}
    kind, text = fields.get("kind"), str(fields.get("text", ""))[:_LONGEST_ERROR]
    cls = _ERRORS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return RuntimeError(f"on node {node}: {text}")
    if cls is RolloutCancelled:
        return RolloutCancelled(text)
    error = cls(text)
    if isinstance(error, IntercodeError):
        error.test_output = str(fields.get("test_output", ""))[:_LONGEST_ERROR]
    return error
