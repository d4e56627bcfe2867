"""A backend: an object that makes sandboxes in its own way."""

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
    """Do nothing, as there is no pool with idle sandboxes."""


@dataclass(frozen=True)
class BackendEvents:
    """The callbacks of a backend, which it may call from any thread.

    Attributes:
        report: called with a line for the user.
        report_build: called with a line for each slow step of making an image.
        drop: closes the idle sandboxes for which a function returns true, as these are lost.
    """

    report: Callable[[str], None] = _ignore
    report_build: Callable[[str], None] = _ignore
    drop: Callable[[Callable[[Sandbox], bool]], None] = _drop_nothing


class Backend(Launcher, Protocol):
    """Starts sandboxes in one way.

    An entry point of the group ``pytest_intercode.sandboxes`` refers to what makes a backend: a
    class, or a function, that is called with a :class:`SandboxSettings`. Making it starts nothing.
    It is started for the first sandbox; after that, everything else may be called from several
    threads.

    A backend whose sandboxes may be for another processor than this machine's has a further method,
    ``platform``, which takes no arguments and returns their ``Platform``; it may be called at any
    time.

    A backend that starts the services of a spec, and whose sandboxes ``join`` others, has an
    attribute ``has_services`` that is true.

    Attributes:
        name: its name for ``--intercode-sandbox``, which is that of its entry point.
        takes: the fields of the settings that it supports, of ``docker_hosts``, ``platform``,
            ``registry``, ``rootfs``, ``runtime`` and those of clusters; others are reported to the
            user.
        builds_images: it builds images from Dockerfiles, and not only approximations of them.
        shares_network: a sandbox with network access uses the network of this machine, with its
            ports.
    """

    name: str
    takes: frozenset[str]
    builds_images: bool
    shares_network: bool

    def __str__(self) -> str:
        """Return its name, with other settings that the user wants to see."""

    def requested(self) -> str | None:
        """Return why ``auto`` has to choose this backend: one of its own settings is given.

        None if no such setting is given; empty if there is nothing to report.
        """

    def problem(self) -> str:
        """Return why it cannot be used here, in one line, or nothing; quick, and starts nothing."""

    def check(self, options: Mapping[str, str]) -> None:
        """Check that the backend supports the settings that are given.

        If it does not answer at all, this does not fail: the first sandbox reports it.

        Args:
            options: the fields of the settings to check, with the option that the user wrote before
                each value, such as ``--intercode-rootfs``; for messages.

        Raises:
            ConfigurationError: it does not support them.
        """

    def start(self, events: BackendEvents) -> None:
        """Start it; called once, before the members below are used.

        Raises:
            EngineUnavailable: it cannot be used here.
        """

    @property
    def images(self) -> Images:
        """The backend's images."""

    def close(self) -> None:
        """End every sandbox, and release everything; also if it was never started."""


@runtime_checkable
class DescribedBackend(Protocol):
    """A backend that can describe itself, beyond whether it can be used."""

    def describe(self, problem: str) -> Iterable[Fact]:
        """Return facts for ``pytest-intercode doctor``; takes seconds at most, and starts nothing.

        Args:
            problem: what :meth:`Backend.problem` has returned.
        """


class Engine(Launcher, Protocol):
    """The part of our backends that exists once they are started."""

    def close(self) -> None:
        """End every sandbox, and release everything."""


class EngineBackend:
    """What our backends have in common: an engine, which ``start`` makes.

    Attributes:
        settings: where sandboxes come from.
        engine: starts them; None until the backend is started.
        images: the engine's images; set when the backend is started.
    """

    images: Images

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.engine: Engine | None = None

    @property
    def starters(self) -> int:
        """How many simultaneous starts are useful."""
        assert self.engine is not None, "it is started first"
        return self.engine.starters

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a fresh sandbox."""
        assert self.engine is not None, "it is started first"
        return self.engine.launch(spec)

    def close(self) -> None:
        """End every sandbox, and close the engine."""
        if self.engine is not None:
            self.engine.close()
