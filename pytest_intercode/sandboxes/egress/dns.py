"""The part of DNS that a name server needs if it knows its own answers (RFC 1035).

This is pure code: its input was written by an agent. Its text runs in the proxy, so it imports only
the standard library.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

__all__ = ["REFUSED", "answer"]

REFUSED = None
"""The result of a lookup for a name that does not exist for the sandbox."""

_HEADER = struct.Struct("!6H")
_MAX_QUERY = 512  # bytes
_RESPONSE, _OPCODE, _RECURSION = 0x8000, 0x7800, 0x0100
_AUTHORITATIVE, _AVAILABLE = 0x0400, 0x0080
_FORMAT_ERROR, _NO_SUCH_NAME, _NOT_IMPLEMENTED = 1, 3, 4
_A, _INTERNET, _SECONDS = 1, 1, 60
_NAME_HERE = 0xC00C  # a pointer to the question's name


def answer(query: bytes, lookup: Callable[[str], str | None]) -> bytes:
    """Return the answer to a query; nothing if the message is not a query.

    Args:
        query: a message as it arrived.
        lookup: returns the IPv4 address of a name as it was written, an empty string for a name
            without one, or :data:`REFUSED`.
    """
    if len(query) < _HEADER.size:
        return b""
    number, flags, questions, *_ = _HEADER.unpack_from(query)
    if flags & _RESPONSE:
        return b""
    if flags & _OPCODE:
        return _pack_header(number, flags, _NOT_IMPLEMENTED)
    fields = _parse_question(query) if questions == 1 else None
    if fields is None:
        return _pack_header(number, flags, _FORMAT_ERROR)
    name, end, kind = fields
    question = query[_HEADER.size : end]
    address = lookup(name)
    if address is REFUSED:
        return _pack_header(number, flags, _NO_SUCH_NAME, 1) + question
    if kind != (_A, _INTERNET) or not address:
        return _pack_header(number, flags, 0, 1) + question
    record = struct.pack("!HHHIH", _NAME_HERE, _A, _INTERNET, _SECONDS, 4)
    packed = ipaddress.IPv4Address(address).packed
    return _pack_header(number, flags, 0, 1, 1) + question + record + packed


def _pack_header(number: int, flags: int, code: int, questions: int = 0, answers: int = 0) -> bytes:
    response_flags = _RESPONSE | _AUTHORITATIVE | _AVAILABLE | flags & _RECURSION | code
    return _HEADER.pack(number, response_flags, questions, answers, 0, 0)


def _parse_question(query: bytes) -> tuple[str, int, tuple[int, int]] | None:
    """Return the name in the question, the end of the question, and its type and class."""
    labels: list[str] = []
    offset = _HEADER.size
    while offset < min(len(query), _MAX_QUERY):
        size = query[offset]
        offset += 1
        if size == 0:
            if len(query) < offset + 4:
                return None
            return ".".join(labels), offset + 4, struct.unpack_from("!HH", query, offset)
        if size > 63 or offset + size > len(query):  # a question must not contain a pointer
            return None
        labels.append(query[offset : offset + size].decode("latin-1"))
        offset += size
    return None
