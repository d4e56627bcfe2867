"""Types of arguments that more than one command has."""

from __future__ import annotations

import argparse

__all__ = ["count", "pair"]


def count(text: str) -> int:
    """Return a whole number from 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 is needed")
    return number


def pair(text: str) -> tuple[str, str]:
    """Return the halves of ``NAME=REPLACEMENT``."""
    name, sign, replacement = text.partition("=")
    if not (name and sign and replacement):
        raise argparse.ArgumentTypeError(f"{text}: the form NAME=REPLACEMENT is needed")
    return name, replacement
