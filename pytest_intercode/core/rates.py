"""Rates that a run is judged by: of all its tries, and of those of one test."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Literal, NamedTuple, cast

from pytest_intercode.errors import ConfigurationError

__all__ = ["FailUnder", "PassRule", "check_repetition", "parse_fail_under", "parse_rate"]


class FailUnder(NamedTuple):
    """The share of tries, in (0, 1], that must be solved for a run to pass."""

    rate: float
    lower: bool
    """It is the lower bound of the rate's interval that must reach it."""


@dataclass(frozen=True)
class PassRule:
    """A share of a test's tries that has to be solved.

    Attributes:
        tries: how many tries the test has, at least 1.
        rate: the share, above 0 and up to 1.
    """

    tries: int
    rate: float

    @property
    def allowed_misses(self) -> int:
        """How many tries may miss: ``floor(tries * (1 - rate))``.

        The rate is taken as it is written in decimals. As floats, ``5 * (1 - 0.8)`` is less
        than 1.
        """
        return floor(self.tries * (1 - Fraction(str(self.rate))))

    def is_missed(self, misses: int) -> bool:
        """Whether so many misses are too many, whatever comes of the other tries."""
        return misses > self.allowed_misses

    def decide(self, solved: int, misses: int) -> Literal["missed", "reached"] | None:
        """Return what no further try can change; None while tries count.

        Args:
            solved: how many tries were solved.
            misses: how many were not; tries with an error of their own are in neither number.
        """
        if self.is_missed(misses):
            return "missed"
        return "reached" if solved >= self.tries - self.allowed_misses else None

    def __str__(self) -> str:
        return f"pass_rate={self.rate:g}"

    # -- for people

    def describe_allowed(self, misses: int) -> str:
        """Return why a try that missed does not fail; it is the last of so many misses."""
        return f"{misses} of {self.allowed_misses} misses that {self} allows"

    def describe_missed(self, misses: int, solved: int) -> str:
        """Return why the tries of a test fail together."""
        ran = misses + solved
        tries = f"{misses} of {ran} tries" if ran != 1 else "the only try"
        of_all = "" if ran == self.tries else f" of {self.tries}"
        return f"{tries} missed, and {self} allows {self.allowed_misses or 'none'}{of_all}"

    def describe_rest(self, solved: int, misses: int) -> str:
        """Return why a further try is not run."""
        if self.decide(solved, misses) == "missed":
            return f"not run: {self} is missed ({self.describe_missed(misses, solved)})"
        return f"not run: {self} is reached ({solved} of {self.tries} tries solved)"


def check_repetition(place: str, repeat: object, pass_rate: object) -> None:
    """Check what a mark says of tries; None for what it does not say.

    Args:
        place: the mark, for the message.
        repeat: the number of tries.
        pass_rate: the share of them that must be solved.

    Raises:
        ConfigurationError: one of them is not such a number.
    """
    if repeat is not None and not (type(repeat) is int and repeat >= 1):
        raise ConfigurationError(f"{place}(repeat={repeat!r}): a whole number above 0 is needed")
    is_rate = type(pass_rate) in (int, float) and 0 < cast("float", pass_rate) <= 1
    if pass_rate is not None and not is_rate:
        raise ConfigurationError(
            f"{place}(pass_rate={pass_rate!r}): a number above 0 and up to 1 is needed, such as 0.8"
        )


def parse_rate(value: str) -> float:
    """Read a share above 0 and up to 1: ``0.8`` or ``80%``.

    Raises:
        ValueError: it is something else; the message says what is needed.
    """
    rate = _read_share(value)
    if not 0 < rate <= 1:
        raise ValueError("a rate above 0 and up to 1 is needed, such as 0.8 or 80%")
    return rate


def parse_fail_under(value: str) -> FailUnder:
    """Read a share as :func:`parse_rate` does, or ``lower:`` and a share.

    Raises:
        ValueError: it is something else; the message says what is needed.
    """
    head, colon, number = value.rpartition(":")
    rate = _read_share(number)
    if not 0 < rate <= 1 or (colon and head.strip() != "lower"):
        raise ValueError("a rate above 0 and up to 1 is needed, such as 0.8, 80% or lower:0.8")
    return FailUnder(rate, bool(colon))


def _read_share(text: str) -> float:
    """Return the number of a text, a hundredth of it with ``%``; 0 where it is none."""
    number = text.strip()
    try:  # of floats, 99.9 / 100 is not 0.999
        return float(Decimal(number.removesuffix("%")) / (100 if number.endswith("%") else 1))
    except ArithmeticError:
        return 0.0
