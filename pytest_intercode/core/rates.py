"""Rates that decide whether a run passes: of all its tries, and of the tries of one test."""

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
    """Whether the lower bound of the rate's confidence interval must reach it."""


@dataclass(frozen=True)
class PassRule:
    """The share of a test's tries that must be solved.

    Attributes:
        tries: how many tries the test has, at least 1.
        rate: the share, above 0 and up to 1.
    """

    tries: int
    rate: float

    @property
    def allowed_misses(self) -> int:
        """The number of tries that may miss: ``floor(tries * (1 - rate))``.

        This uses the exact decimal value of the rate. With floats, ``5 * (1 - 0.8)`` is less
        than 1.
        """
        return floor(self.tries * (1 - Fraction(str(self.rate))))

    def is_missed(self, misses: int) -> bool:
        """Whether there are too many misses, whatever the results of the other tries."""
        return misses > self.allowed_misses

    def decide(self, solved: int, misses: int) -> Literal["missed", "reached"] | None:
        """Return the result if no further try can change it; None otherwise.

        Args:
            solved: how many tries were solved.
            misses: how many were not; ungraded tries are in neither number.
        """
        if self.is_missed(misses):
            return "missed"
        return "reached" if solved >= self.tries - self.allowed_misses else None

    def __str__(self) -> str:
        return f"pass_rate={self.rate:g}"

    # -- for people

    def describe_allowed(self, misses: int) -> str:
        """Return why a try that missed does not fail; ``misses`` includes it."""
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
    """Check the arguments of a mark about tries; None for an argument that is not given.

    Args:
        place: the mark, for the message.
        repeat: the number of tries.
        pass_rate: the share of the tries that must be solved.

    Raises:
        ConfigurationError: one of them is not a number in the allowed range.
    """
    if repeat is not None and not (type(repeat) is int and repeat >= 1):
        raise ConfigurationError(f"{place}(repeat={repeat!r}): a whole number above 0 is needed")
    is_rate = type(pass_rate) in (int, float) and 0 < cast("float", pass_rate) <= 1
    if pass_rate is not None and not is_rate:
        raise ConfigurationError(
            f"{place}(pass_rate={pass_rate!r}): a number above 0 and up to 1 is needed, such as 0.8"
        )


def parse_rate(value: str) -> float:
    """Parse a share above 0 and up to 1: ``0.8`` or ``80%``.

    Raises:
        ValueError: the text has another form; the message says what is needed.
    """
    rate = _read_share(value)
    if not 0 < rate <= 1:
        raise ValueError("a rate above 0 and up to 1 is needed, such as 0.8 or 80%")
    return rate


def parse_fail_under(value: str) -> FailUnder:
    """Parse a share like :func:`parse_rate`, optionally with ``lower:`` before it.

    Raises:
        ValueError: the text has another form; the message says what is needed.
    """
    head, colon, number = value.rpartition(":")
    rate = _read_share(number)
    if not 0 < rate <= 1 or (colon and head.strip() != "lower"):
        raise ValueError("a rate above 0 and up to 1 is needed, such as 0.8, 80% or lower:0.8")
    return FailUnder(rate, bool(colon))


def _read_share(text: str) -> float:
    """Return a text's number, divided by 100 if it ends in ``%``; 0 if it is not a number."""
    number = text.strip()
    try:  # Decimal, because 99.9 / 100 is not 0.999 with floats
        return float(Decimal(number.removesuffix("%")) / (100 if number.endswith("%") else 1))
    except ArithmeticError:
        return 0.0
