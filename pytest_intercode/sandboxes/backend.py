"""A backend: one object that makes sandboxes in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pytest_intercode.core.facts import Fact
from pytest_intercode.sandboxes.images import Images
from pytest_intercode.sandboxes.protocol import Launcher, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["Backend", "BackendEvents", "DescribedBackend", "EngineBackend"]


def _ignore(line: str) -> None:
    """Show no progress."""


def _drop_nothing(is_lost: Callable[[Sandbox], bool]) -> None:
    """Have no pool that would hold idle sandboxes."""


@dataclass(frozen=True)
class BackendEvents:
    """What a backend notifies of, from any thread.

    Attributes:
        report: called with a line for the user.
        report_build: called with a line for each slow step of an image.
        drop: closes the idle sandboxes for which a function returns true, as they are lost.
    """

    report: Callable[[str], None] = _ignore
    report_build: Callable[[str], None] = _ignore
    drop: Callable[[Callable[[Sandbox], bool]], None] = _drop_nothing


class Backend(Launcher, Protocol):
    """Starts sandboxes in one way.

    An entry point of the group ``pytest_intercode.sandboxes`` names what makes one: a class, or a
    function, that is called with a :class:`SandboxSettings`. That starts nothing. The first sandbox
    starts it, and everything else may be called from several threads then.

    A backend whose sandboxes may be for another processor than this machine's has a further method,
    ``platform``, which takes nothing and returns their ``Platform``; it may be called at any time.

    A backend that starts the services of a spec, and whose sandboxes ``join`` others, has an
    attribute ``has_services`` that is true.

    Attributes:
        name: what ``--intercode-sandbox`` calls it, as its entry point does.
        takes: which of ``docker_hosts``, ``platform``, ``registry``, ``rootfs``, ``runtime`` and
            those of clusters of the settings it can have; others are reported to the user.
        builds_images: it makes images by Dockerfiles, and not only their likes.
        shares_network: a sandbox with the network has that of this machine, with its ports.
    """

    name: str
    takes: frozenset[str]
    builds_images: bool
    shares_network: bool

    def __str__(self) -> str:
        """Return its name, and what else of the settings the user wants to see."""

    def requested(self) -> str | None:
        """Return why ``auto`` is this one, whatever else there is: a setting of its own is given.

        None where none is; empty where there is nothing to say.
        """

    def problem(self) -> str:
        """Return why it cannot be used here, in one line, or nothing; quick, and starts nothing."""

    def check(self, options: Mapping[str, str]) -> None:
        """See that it can have the settings that are given.

        Where it does not answer at all, that is what the first sandbox meets.

        Args:
            options: by the fields of the settings that are to be checked, what the user wrote
                their values after, such as ``--intercode-rootfs``; for messages.

        Raises:
            ConfigurationError: it cannot.
        """

    def start(self, events: BackendEvents) -> None:
        """Start it; called once, before what follows.

        Raises:
            EngineUnavailable: it cannot be used here.
        """

    @property
    def images(self) -> Images:
        """Its images."""

    def close(self) -> None:
        """End every sandbox, and give back everything; also where it was never started."""


@runtime_checkable
class DescribedBackend(Protocol):
    """A backend that says more of itself than whether it can be used."""

    def describe(self, problem: str) -> Iterable[Fact]:
        """Return what ``pytest-intercode doctor`` says of it; within seconds, and starts nothing.

        Args:
            problem: what :meth:`Backend.problem` has returned.
        """


class Engine(Launcher, Protocol):
    """What a backend of ours has once it is started."""

    def close(self) -> None:
        """End every sandbox, and give back everything."""


class EngineBackend:
    """What our backends have in common: an engine, which ``start`` makes.

    Attributes:
        settings: where sandboxes come from.
        engine: starts them; None until the backend is started.
        images: those of the engine, likewise.
    """

    images: Images

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.engine: Engine | None = None

    @property
    def starters(self) -> int:
        """How many starts at the same time are good for it."""
        assert self.engine is not None, "it is started first"
        return self.engine.starters

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a fresh sandbox."""
        assert self.engine is not None, "it is started first"
        return self.engine.launch(spec)

    def close(self) -> None:
        """End every sandbox, and let go of the engine."""
        if self.engine is not None:
            self.engine.close()
