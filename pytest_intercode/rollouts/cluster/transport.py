"""What carries messages between the driver and nodes, whichever engine does it.

A node is known by an id that is never used again: a new process on the same machine has another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

__all__ = ["Event", "Gone", "Heard", "Joined", "Refused", "Said", "Silent", "Transport"]


@dataclass(frozen=True)
class Joined:
    """A node is there, and its process answers.

    Attributes:
        node: its id.
        name: its name, for people; the same for all processes of a machine.
        weight: its share of the run is in proportion to this.
    """

    node: str
    name: str
    weight: float


@dataclass(frozen=True)
class Said:
    """A node said something: messages, as bytes."""

    node: str
    data: bytes


@dataclass(frozen=True)
class Silent:
    """A node has not answered for a while."""

    node: str
    reason: str


@dataclass(frozen=True)
class Heard:
    """A silent node answers again."""

    node: str


@dataclass(frozen=True)
class Gone:
    """A node's process has ended.

    Attributes:
        node: its id.
        reason: why, in a few words.
        process: its process alone has ended, and the node is still there: what ran in it may have
            done it.
    """

    node: str
    reason: str
    process: bool


@dataclass(frozen=True)
class Refused:
    """A node has come in the middle of the run, and cannot be used.

    Attributes:
        name: its name, for people.
        reason: why, in a few words.
    """

    name: str
    reason: str


Event: TypeAlias = "Joined | Said | Silent | Heard | Gone | Refused"


class Transport(Protocol):
    """Carries messages. Its calls return at once, and may come from any thread."""

    def start(self, report: Callable[[Event], None]) -> None:
        """Begin to report events, on threads of its own; those that have joined are reported."""

    def send(self, node: str, data: bytes) -> None:
        """Send messages to a node; what is sent to one that is gone is lost."""

    def send_file(self, node: str, digest: str, pieces: Iterator[bytes]) -> None:
        """Send the content with a digest to a node, piece by piece; an empty piece ends it."""

    def replace(self, node: str) -> None:
        """Start a new process in place of one that is gone, on the same machine."""

    def close(self) -> None:
        """End the processes on all nodes."""
