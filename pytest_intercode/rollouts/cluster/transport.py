"""What carries messages between the driver and nodes, whichever engine does it.

A node is known by an id that is never used again: a new process on the same machine has another.
So nothing that a process says after it was given up belongs to anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

__all__ = ["Event", "Gone", "Joined", "Received", "Refused", "Transport"]


@dataclass(frozen=True)
class Joined:
    """A node is there, and its process can play.

    Attributes:
        node: its id.
        name: its name, for people; the same for all processes of a machine.
        weight: its share of the run is in proportion to this.
        backend: the backend of its sandboxes.
    """

    node: str
    name: str
    weight: float
    backend: str


@dataclass(frozen=True)
class Received:
    """A node has sent messages, as bytes."""

    node: str
    data: bytes


@dataclass(frozen=True)
class Gone:
    """A node's process has ended, or does not answer.

    Attributes:
        node: its id.
        reason: why, in a few words.
        process: its process alone is gone, and the node is still there: what ran in it may have
            caused that.
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


Event: TypeAlias = "Joined | Received | Gone | Refused"


class Transport(Protocol):
    """Carries messages. Its calls return at once, but for the first and the last."""

    def start(self, report: Callable[[Event], None], settings: Callable[[], bytes]) -> list[Joined]:
        """Have processes started on all nodes, and return those that have joined.

        Args:
            report: takes what happens from now on, on threads of the transport's.
            settings: returns what a process is to know first, as JSON.

        Raises:
            ConfigurationError: a node cannot be used.
        """

    def send(self, node: str, data: bytes) -> None:
        """Send messages to a node; what is sent to one that is gone is lost."""

    def send_file(self, node: str, digest: str, pieces: Callable[[], Iterator[bytes]]) -> None:
        """Send the content with a digest to a node."""

    def replace(self, node: str) -> None:
        """End the process of a node, and start another one on the same machine."""

    def close(self, timeout: float) -> None:
        """End the processes on all nodes, which have so many seconds for it."""
