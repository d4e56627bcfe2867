"""The Docker engine of a simulated Mac: it is in a virtual machine, which shares no folder."""

from __future__ import annotations

import contextlib
import gc
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_intercode.core.task import ImageSource
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.files import bundled_folder
from tests.support.engine_proxy import EngineProxy
from tests.support.second_engine import SecondEngine

__all__ = ["BASE", "Machine", "bundled_images", "made_machine"]

BASE = "debian:bookworm-slim"
"""The image that others are made of; it cannot be pulled in the machine, which has no network."""

_SIZE = "3g"  # of the disk, which is in memory


class Machine:
    """A virtual machine with an engine.

    Attributes:
        engine: the engine, by its socket: as Docker Desktop's on a Mac.
        tcp: what ``DOCKER_HOST`` is to reach it by TCP.
    """

    def __init__(self, engine: SecondEngine, tcp: str) -> None:
        self.engine = engine
        self.tcp = tcp


@contextlib.contextmanager
def made_machine(images: Iterable[str]) -> Iterator[Machine]:
    """Start a machine that has some images of this machine's own engine."""
    folder = Path(tempfile.mkdtemp(prefix="icv", dir="/tmp"))  # short enough for sockets
    engine = SecondEngine(folder, size=_SIZE, machine=True)
    try:
        for image in images:
            engine.load(image)
        with warnings.catch_warnings():
            # The SDK leaves the sockets open that it has read images from.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        with EngineProxy(None, engine.url.removeprefix("unix://")) as proxy:
            yield Machine(engine, proxy.url)
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def bundled_images() -> list[str]:
    """Return the images that the bundled suites need a network for; this machine's engine has them.

    What tasks add to them is built where they are played.
    """
    provider = SandboxProvider(SandboxSettings("docker"))
    folder = bundled_folder("dockerfiles")
    try:
        return [
            provider.image(ImageSource(dockerfile=folder / f"{env}.Dockerfile"))
            for env in BUILTIN_ENVIRONMENTS
            if env != "sql"
        ]
    finally:
        provider.close()
