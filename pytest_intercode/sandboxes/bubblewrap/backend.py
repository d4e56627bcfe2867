"""bubblewrap as a backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from platform import machine

from pytest_intercode.core.platforms import Platform, platform_of_machine
from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.sandboxes.backend import BackendEvents, EngineBackend

__all__ = ["BubblewrapBackend"]


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
        """Return why it is not there, or is too old."""
        from pytest_intercode.sandboxes.bubblewrap.process import find_program

        try:
            find_program()
        except EngineUnavailable as error:
            return str(error)
        return ""

    def check(self, options: Mapping[str, str]) -> None:
        """See that the root file system is a folder, and the platform this machine's."""
        rootfs = self.settings.rootfs
        if "rootfs" in options and rootfs is not None and not rootfs.is_dir():
            raise ConfigurationError(f"{options['rootfs']}={rootfs}: there is no such folder")
        platform = self.settings.default_platform
        if "platform" in options and platform not in (None, self.platform()):
            raise ConfigurationError(
                f"{options['platform']}={platform}: bubblewrap runs this machine's programs, which "
                f"are for {self.platform()}; leave it out, or take --intercode-sandbox=docker"
            )

    def platform(self) -> Platform:
        """Return this machine's platform."""
        return platform_of_machine(machine())

    def start(self, events: BackendEvents) -> None:
        """Start the process that starts sandboxes."""
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
