"""Parsers of the texts that users write as values of options and arguments.

A parser returns a text's value, or raises a ValueError whose message says what is needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

__all__ = ["amount", "choice", "cluster", "size", "text", "whole"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)i?b?", re.IGNORECASE)
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def text(value: str) -> str:
    """Return any text that is not empty."""
    if not value:
        raise ValueError("a value is needed")
    return value


def size(value: str) -> int:
    """Return the bytes of ``512k``, ``256m`` or ``2g``."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is needed: a number of bytes, or one like 512k, 256m, 2g")
    return int(float(match[1]) * _BYTES[match[2].lower()])


def whole(needed: str, least: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers.

    Args:
        needed: what the message says is needed.
        least: the smallest number that is allowed, or None.
    """

    def parse(value: str) -> int:
        """Return the number of a text."""
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is None or (least is not None and number < least):
            raise ValueError(f"{needed} is needed, found {value!r}")
        return number

    return parse


def amount(needed: str, *, zero: bool = False) -> Callable[[str], float]:
    """Return a parser of finite numbers above 0.

    Args:
        needed: what the message says is needed.
        zero: whether 0 is allowed, too.
    """

    def parse(value: str) -> float:
        """Return the number of a text."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (0 < number < math.inf or (zero and number == 0)):
            raise ValueError(f"{needed} is needed, found {value!r}")
        return number

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser that takes one of some words."""

    def parse(value: str) -> str:
        if value not in allowed:
            from pytest_intercode.errors import suggestion

            raise ValueError(f"allowed are {', '.join(allowed)}.{suggestion(value, allowed)}")
        return value

    return parse


def cluster(value: str) -> str:
    """Return the address of a cluster: ``auto``, ``HOST:PORT`` or ``local:N``."""
    head, _, nodes = value.partition(":")
    if head == "local" and not (nodes.isdecimal() and 1 <= int(nodes) <= 64):
        raise ValueError("local:N is needed, with N from 1 to 64")
    if head != "local" and value != "auto" and not value.rpartition(":")[2].isdecimal():
        raise ValueError("auto, HOST:PORT or local:N is needed")
    return value
