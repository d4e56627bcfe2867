"""Platforms: the processor that a Linux image, or a program, is for. Pure data."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Platform", "parse_platform", "platform_of_machine"]

# The name in images, by the names that ``uname -m``, Docker and people use.
_ARCHITECTURES = {
    **{name: name for name in ("amd64", "arm64", "386", "arm", "loong64", "mips64le")},
    **{name: name for name in ("ppc64le", "riscv64", "s390x")},
    **{"x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "aarch64": "arm64"},
    **{"i386": "386", "i686": "386", "armhf": "arm", "loongarch64": "loong64"},
}
# The name in ``uname -m`` and in Python wheels, where it differs.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}
_MACHINE_VARIANTS = {"armv6l": "v6", "armv7l": "v7"}  # variants of arm
# The variants that are meant if none is written, so they are left out.
_USUAL_VARIANTS = {"amd64": "v1", "arm64": "v8"}
_VARIANT = re.compile(r"v[1-9]\d?")
# Programs for the second run natively on a processor of the first.
_RUNS_TOO = {("amd64", "386"), ("arm64", "arm")}


@dataclass(frozen=True)
class Platform:
    """A processor; the operating system of every sandbox is Linux.

    Attributes:
        architecture: its name in images: ``amd64``, ``arm64``.
        variant: the variant, such as ``v7`` of ``arm``; empty for the usual one.
    """

    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, ("linux", self.architecture, self.variant)))

    @property
    def machine(self) -> str:
        """The name that ``uname -m`` prints: ``x86_64``, ``aarch64``."""
        return _MACHINES.get(self.architecture, self.architecture)

    def has_to_emulate(self, other: Platform) -> bool:
        """Whether a machine of this platform can run programs of another only by emulation."""
        pair = self.architecture, other.architecture
        return pair[0] != pair[1] and pair not in _RUNS_TOO


def parse_platform(text: str) -> Platform:
    """Parse ``linux/amd64``, ``linux/arm64/v8``, ``amd64``, ``x86_64`` and the like.

    Raises:
        ValueError: the text has another form; the message says what is needed.
    """
    words = text.strip().lower().split("/")
    system, *words = words if len(words) > 1 else ("linux", *words)
    architecture, variant = (*words, "")[:2]
    is_known = system == "linux" and len(words) <= 2 and architecture in _ARCHITECTURES
    if not is_known or (variant and not _VARIANT.fullmatch(variant)):
        raise ValueError(
            "linux/ARCHITECTURE is needed, as linux/amd64 or linux/arm64; sandboxes run Linux"
        )
    return _plain(_ARCHITECTURES[architecture], variant)


def platform_of_machine(machine: str) -> Platform:
    """Return the platform for an architecture's name from ``uname -m``, an engine or an image.

    Unknown names are kept, because an engine may be newer than this list.
    """
    machine = machine.lower()
    if machine in _MACHINE_VARIANTS:
        return Platform("arm", _MACHINE_VARIANTS[machine])
    return Platform(_ARCHITECTURES.get(machine, machine))


def _plain(architecture: str, variant: str) -> Platform:
    return Platform(architecture, "" if variant == _USUAL_VARIANTS.get(architecture) else variant)
