"""bubblewrap as a backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.sandboxes.backend import BackendEvents
from pytest_intercode.sandboxes.images import Images
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap

__all__ = ["BubblewrapBackend"]


class BubblewrapBackend:
    """Sandboxes without a daemon; see :class:`~pytest_intercode.sandboxes.backend.Backend`."""

    name = "bubblewrap"
    takes = frozenset({"rootfs"})
    builds_images = False
    shares_network = True
    images: Images

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self.engine: Bubblewrap | None = None

    def __str__(self) -> str:
        return self.name

    def requested(self) -> str | None:
        """Return that a root file system is given."""
        return None if self._settings.rootfs is None else "--intercode-rootfs is given"

    def problem(self) -> str:
        """Return why it is not there, or is too old."""
        from pytest_intercode.sandboxes.bubblewrap.process import find_program

        try:
            find_program()
        except EngineUnavailable as error:
            return str(error)
        return ""

    def check(self, options: Mapping[str, str]) -> None:
        """See that the root file system is a folder."""
        rootfs = self._settings.rootfs
        if "rootfs" in options and rootfs is not None and not rootfs.is_dir():
            raise ConfigurationError(f"{options['rootfs']}={rootfs}: there is no such folder")

    def start(self, events: BackendEvents) -> None:
        """Start the process that starts sandboxes."""
        from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
        from pytest_intercode.sandboxes.bubblewrap.images import Images as Systems
        from pytest_intercode.system.files import bundled_folder

        settings = self._settings
        own_folders = [Path(__file__).parents[2], bundled_folder("tasks"), Path.cwd()]
        engine = self.engine = Bubblewrap([*map(str, own_folders), *map(str, settings.hidden)])
        engine.sweep()
        dockerfiles = bundled_folder("dockerfiles")
        self.images = Systems(
            dockerfiles, settings.rootfs, events.report_build, engine, settings.verbosity
        )

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
        """End every sandbox and the process that starts them."""
        if self.engine is not None:
            self.engine.close()
