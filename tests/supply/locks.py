"""Reads the lock files in ``requirements/`` and what pyproject.toml asks for.

A lock file names every package that an installation gets, with its version and the SHA-256 of each
of its files; ``scripts/lock`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

__all__ = ["FOLDER", "LOCKS", "ROOT", "Pin", "project", "read_lock", "requested"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "requirements"

LOCKS = {"run": (), "test": ("test",), "lint": ("lint",), "site": ("site",), "supply": ("supply",)}
"""The extras that each lock file is for; ``run`` is for the package as it is."""

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """A package in one version.

    Attributes:
        name: its normalised name.
        version: the version.
        marker: on which machines it is installed; None for all.
        hashes: the SHA-256 of each of its files, in hexadecimal.
    """

    name: NormalizedName
    version: str
    marker: Marker | None
    hashes: frozenset[str]

    def fits(self, environment: dict[str, str]) -> bool:
        """Whether it is installed in an environment, by the names of PEP 508."""
        return self.marker is None or self.marker.evaluate(dict(environment))


def read_lock(name: str) -> list[Pin]:
    """Return the pins of a lock file.

    Raises:
        ValueError: a line is no pin of one version with hashes.
    """
    text = (FOLDER / f"{name}.txt").read_text().replace("\\\n", " ")
    return [_pin(line) for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]


def _pin(line: str) -> Pin:
    wanted, *_ = line.split(" --hash=")
    requirement = Requirement(wanted.strip())
    hashes = frozenset(_HASH.findall(line))
    [specifier] = requirement.specifier
    if specifier.operator != "==" or requirement.url or not hashes:
        raise ValueError(f"no pin of one version with hashes: {line}")
    return Pin(canonicalize_name(requirement.name), specifier.version, requirement.marker, hashes)


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    # pytest itself brings tomli to Python 3.10.
    tomllib = import_module("tomllib" if find_spec("tomllib") else "tomli")
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requested(extras: tuple[str, ...]) -> Iterator[Requirement]:
    """Yield what pyproject.toml asks for with some extras."""
    found = project()
    lists = [found["dependencies"], *(found["optional-dependencies"][name] for name in extras)]
    yield from (Requirement(line) for lines in lists for line in lines)
