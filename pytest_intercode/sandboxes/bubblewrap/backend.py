"""bubblewrap as a backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from platform import machine

from pytest_intercode.core.facts import Fact
from pytest_intercode.core.platforms import Platform, platform_of_machine
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.sandboxes.backend import BackendEvents, EngineBackend
from pytest_intercode.system.platform import IS_LINUX

__all__ = ["BubblewrapBackend"]

_OTHER_SYSTEM = "bubblewrap runs on Linux only; use Docker here"


class BubblewrapBackend(EngineBackend):
    """Sandboxes without a daemon; see :class:`~pytest_intercode.sandboxes.backend.Backend`."""

    name = "bubblewrap"
    takes = frozenset({"platform", "rootfs"})
    builds_images = False
    shares_network = True

    def __str__(self) -> str:
        return self.name

    def requested(self) -> str | None:
        """Return that a root file system is given."""
        return None if self.settings.rootfs is None else "--intercode-rootfs is given"

    def problem(self) -> str:
        """Return why bubblewrap is not available, or that it is too old."""
        if not IS_LINUX:
            return _OTHER_SYSTEM
        from pytest_intercode.sandboxes.bubblewrap.process import find_program

        try:
            find_program()
        except EngineUnavailable as error:
            return str(error)
        return ""

    def describe(self, problem: str) -> Iterator[Fact]:
        """Yield its version, and which limits sandboxes have.

        This begins and ends the process that would start sandboxes, as nothing else shows whether
        the kernel allows it.
        """
        if problem:
            yield Fact(self.name, problem, "problem")
            return
        from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
        from pytest_intercode.sandboxes.bubblewrap.process import find_version

        try:
            engine = Bubblewrap()
        except EngineUnavailable as error:
            yield Fact(self.name, str(error), "problem")
            return
        grouped, all_users = engine.grouped, engine.all_ids
        engine.close()
        users = "" if all_users else ", whose only user is root (docs/sandbox.md: uidmap)"
        yield Fact(self.name, f"bubblewrap {find_version()} makes sandboxes here{users}")
        if grouped:
            text = "memory, processes and processor time are limited, by control groups"
            yield Fact(f"{self.name} limits", text)
        else:
            text = "memory is limited for each process, not for the sandbox, and processor time is "
            text += "not limited, because no control group can be made here (docs/sandbox.md)"
            yield Fact(f"{self.name} limits", text, "note")

    def check(self, options: Mapping[str, str]) -> None:
        """Check that the root file system is a folder, and the platform is this machine's."""
        rootfs = self.settings.rootfs
        if "rootfs" in options and rootfs is not None and not rootfs.is_dir():
            raise ConfigurationError(f"{options['rootfs']}={rootfs}: there is no such folder")
        platform = self.settings.default_platform
        if "platform" in options and platform not in (None, self.platform()):
            raise ConfigurationError(
                f"{options['platform']}={platform}: bubblewrap runs this machine's programs, which "
                f"are for {self.platform()}; remove it, or use --intercode-sandbox=docker"
            )

    def platform(self) -> Platform:
        """Return this machine's platform."""
        return platform_of_machine(machine())

    def start(self, events: BackendEvents) -> None:
        """Start the process that starts sandboxes.

        Raises:
            EngineUnavailable: this is not Linux.
        """
        if not IS_LINUX:
            raise EngineUnavailable(_OTHER_SYSTEM)
        from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
        from pytest_intercode.sandboxes.bubblewrap.images import Systems
        from pytest_intercode.system.files import bundled_folder

        settings = self.settings
        own_folders = [Path(__file__).parents[2], bundled_folder("tasks"), Path.cwd()]
        engine = self.engine = Bubblewrap([*map(str, own_folders), *map(str, settings.hidden)])
        engine.sweep()
        dockerfiles = bundled_folder("dockerfiles")
        self.images = Systems(
            dockerfiles, settings.rootfs, events.report_build, engine, settings.verbosity
        )
