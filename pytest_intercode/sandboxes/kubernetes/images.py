"""The images of a cluster: those that it pulls by name, and our own, from a registry."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import EngineUnavailable, ImageError
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.docker.errors import client_errors, plain
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.docker.link import Link
from pytest_intercode.sandboxes.docker.platforms import engine_platform, platform_of_name
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["ClusterImages"]

_BUILDER = "images for a cluster are built by the Docker engine here"


class ClusterImages:
    """Finds the images that tasks name; the local Docker engine builds what has to be built.

    A cluster builds nothing. Images that are built here are pushed to the registry of the settings,
    and are named by their digest there, so that the nodes pull exactly these. Images that a task
    names are left to the nodes.

    Args:
        settings: the registry, replacements of base images, and the platform.
        report: called with a line for each slow step.
    """

    def __init__(self, settings: SandboxSettings, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._report = report
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._builder: tuple[DockerImages, Platform] | None = None
        self._architectures: dict[str, str] = {}

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the name by which nodes pull an image; build and push it first if necessary."""
        if source.image and not source.layers:
            platform = source.platform or self._settings.default_platform
            name = self._settings.base_images.get(source.image, source.image)
            if platform is not None:
                earlier = self._architectures.setdefault(name, platform.architecture)
                if earlier != platform.architecture:  # a pod identifies its image only by the name
                    raise ImageError(
                        f"{name}: one task needs it for {platform}, another for linux/{earlier}: "
                        "on a cluster, name it by its digest (NAME@sha256:...) in one of them",
                        name,
                    )
            return name
        if not self._settings.registry:
            raise ImageError(
                f"{source.name}: a cluster builds no images: give --intercode-registry=HOST[:PORT]"
                "[/PREFIX]; images are built here and pushed to it, and the nodes pull them",
                source.name,
            )
        builder, own_platform = self._connect()
        name = builder.resolve(source, purpose)
        pinned = builder.pinned(name)
        if "@" not in pinned:
            raise ImageError(
                f"{source.name}: it is not in the registry {self._settings.registry}, from which "
                "the nodes would pull it; make sure that it can be pushed there",
                source.name,
            )
        self._architectures[pinned] = (platform_of_name(name) or own_platform).architecture
        return pinned

    def architecture(self, name: str) -> str:
        """Return the processor that an image is for, in the cluster's words; empty for any."""
        return self._architectures.get(name, "")

    def pinned(self, name: str) -> str:
        """Return the permanent name of an image in its registry, or nothing."""
        return name if "@sha256:" in name else ""

    def identity(self, name: str) -> str:
        """Return the digest of an image, if its name has one, as a tag may be moved."""
        return name.partition("@")[2]

    def stop_builds(self) -> None:
        """End the builds and pulls that are under way."""
        # Without the lock, which _connect() holds for as long as the engine does not answer.
        builder = self._builder
        if builder is not None:
            builder[0].stop_builds()

    def close(self) -> None:
        """Close the connection to the engine that builds."""
        with self._lock:
            if self._link is not None:
                self._link.close()
                self._link = None

    def _connect(self) -> tuple[DockerImages, Platform]:
        """Return the builder, which is connected the first time, and its engine's platform.

        Raises:
            ImageError: no Docker engine answers here.
        """
        with self._lock:
            if self._builder is None:
                try:
                    link = self._link = self._link or connect()
                    platform = engine_platform(link.api.info())
                except EngineUnavailable as error:
                    raise ImageError(f"{_BUILDER}: {error}") from None
                except client_errors() as error:
                    raise ImageError(f"{_BUILDER}: {plain(error)}") from None
                images = DockerImages(link.api, self._settings, self._report, platform)
                self._builder = images, platform
            return self._builder
