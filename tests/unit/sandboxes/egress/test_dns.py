"""The name server's messages, against queries as resolvers write them, and against noise."""

from __future__ import annotations

import random
import struct

import pytest

from pytest_intercode.sandboxes.egress.dns import REFUSED, answer


def query(name: str, kind: int = 1, *, flags: int = 0x0100, questions: int = 1) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode("latin-1") for each in name.split("."))
    header = struct.pack("!6H", 77, flags, questions, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!HH", kind, 1)


def lookup(name: str) -> str | None:
    return {"a.test": "127.88.0.2", "empty.test": ""}.get(name.lower(), REFUSED)


def code(message: bytes) -> int:
    return message[3] & 15


def test_an_address() -> None:
    asked = query("A.test")
    told = answer(asked, lookup)
    assert struct.unpack_from("!6H", told) == (77, 0x8580, 1, 1, 0, 0)
    assert told[12 : len(asked)] == asked[12:]  # the question, in its own spelling
    assert told[-4:] == bytes([127, 88, 0, 2])


@pytest.mark.parametrize(("name", "kind"), [("a.test", 28), ("a.test", 15), ("empty.test", 1)])
def test_no_address_of_this_kind(name: str, kind: int) -> None:
    told = answer(query(name, kind), lookup)
    assert (code(told), struct.unpack_from("!H", told, 6)) == (0, (0,))


def test_a_name_that_is_refused() -> None:
    assert code(answer(query("evil.test"), lookup)) == 3


def test_what_is_no_query() -> None:
    assert answer(b"", lookup) == b""
    assert answer(query("a.test", flags=0x8000), lookup) == b""
    assert code(answer(query("a.test", flags=0x2800), lookup)) == 4
    assert code(answer(query("a.test", questions=2), lookup)) == 1
    pointer = query("a.test")[:12] + b"\xc0\x0c\0\1\0\1"
    assert code(answer(pointer, lookup)) == 1


def test_noise() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        noise = bytearray(query("some.name.test"))
        for _ in range(chance.randrange(1, 6)):
            noise[chance.randrange(len(noise))] = chance.randrange(256)
        told = answer(bytes(noise[: chance.randrange(len(noise) + 1)]), lookup)
        assert told == b"" or (len(told) >= 12 and told[2] & 0x80)
