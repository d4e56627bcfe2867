"""The program that reads a sandbox's files from inside, in the form that is sent there.

``lister.c`` describes what it does; ``scripts/build-lister`` builds the other files from it.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = ["MACHINES", "escape_program", "program"]

MACHINES = ("aarch64", "x86_64")
"""The machines for which there is a program."""

_PLAIN = frozenset(b"%+,-./:;<=>?@^_~ ") | frozenset(
    byte for byte in range(128) if chr(byte).isalnum()
)
_WORDS = [chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in range(256)]


def program(machine: str) -> bytes:
    """Return the program for one of the machines."""
    return resources.files(__name__).joinpath(f"lister-{machine}").read_bytes()


@cache
def escape_program(machine: str) -> bytes:
    """Return the program for one of the machines, escaped for bash's ``printf %b``."""
    return "".join(map(_WORDS.__getitem__, program(machine))).encode("ascii")
