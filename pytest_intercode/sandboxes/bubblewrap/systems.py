"""What takes the place of images: the host's system, or an unpacked root file system."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.protocol import HOST

__all__ = ["Systems"]

_INSTALL = re.compile(r"apt-get install((?:\\\n|[^&|;\n])*)")
# What a Dockerfile does that makes a Debian with some packages, and nothing else.
_PLAIN = re.compile(
    r"ARG BASE=debian(?::\S+)?|FROM (?:debian(?::\S+)?|\$BASE|\$\{BASE\})"
    r"|RUN (?:(?:[A-Z_]+=\S+ )?(?:apt-get (?:update|install|clean)|rm) [^&|;$`]*(?:&& *|$))+",
)
_STATUS = Path("/var/lib/dpkg/status")
_INSTALLED = re.compile(
    r"^Package: (\S+)\n(?:Essential: yes\n)?Status: install ok installed$", re.MULTILINE
)


class Systems:
    """Finds the system for what tasks name as image.

    Args:
        bundled: the folder of our own Dockerfiles; for these, the host's system is as good. For
            others it is where they do nothing but install packages, and the host has them all.
        rootfs: an unpacked root file system for all images; or a folder with one for each,
            called as the Dockerfile is: ``bash`` for ``bash.Dockerfile``.
        progress: called with one line for what a person should know.
        owner: the user that a root file system has to belong to, if to one.
        layered: makes an image of the host's system with what a Dockerfile of ours adds to it.
    """

    def __init__(
        self,
        bundled: Path,
        rootfs: Path | None = None,
        progress: Callable[[str], None] | None = None,
        layered: Callable[[Path, ImageSource], str] | None = None,
        owner: int | None = None,
    ) -> None:
        self._owner = owner
        self._layered = layered
        self._bundled = bundled.resolve()
        self._rootfs = None if rootfs is None else rootfs.resolve()
        self._progress = progress or (lambda line: None)
        self._known: dict[ImageSource, str] = {}
        self._lock = threading.Lock()

    def resolve(self, source: ImageSource) -> str:
        """Return the path of a root file system, or that the host's is to be used.

        Raises:
            ImageError: there is none for this image.
        """
        with self._lock:
            if source not in self._known:
                self._known[source] = self._find(source)
            return self._known[source]

    def _find(self, source: ImageSource) -> str:
        name = _name(source)
        if self._rootfs is not None:
            for folder in (self._rootfs / name, self._rootfs):
                if _is_root(folder):
                    self._check(folder)
                    return str(folder)
            raise ImageError(
                f"--intercode-rootfs={self._rootfs}: neither it nor {name} in it is an unpacked "
                "root file system (it has no usr/bin/bash)"
            )
        dockerfile = source.dockerfile
        ours = dockerfile is not None and dockerfile.resolve().is_relative_to(self._bundled)
        text = "" if dockerfile is None else _text(dockerfile)
        if dockerfile is None or not (ours or _is_plain(text)):
            raise ImageError(
                f"the image {source.image or dockerfile} is made by Docker; for bubblewrap, unpack "
                f"it (`docker export`) and give --intercode-rootfs, with it or with {name}/ in it"
            )
        if source.context and self._layered:
            return self._layered(dockerfile, source)
        missing = list(_missing(text))
        if missing and not ours:
            raise ImageError(
                f"this machine lacks what {dockerfile} installs: apt-get install "
                f"{' '.join(missing)}; or give --intercode-rootfs, with the image unpacked"
            )
        if missing:
            self._progress(
                f"this machine lacks what {dockerfile.name} installs, and some tasks may need it: "
                f"apt-get install {' '.join(missing)} (or give --intercode-rootfs)"
            )
        return HOST

    def _check(self, folder: Path) -> None:
        if self._owner not in (None, (folder / "usr").stat().st_uid):
            raise ImageError(
                f"--intercode-rootfs: {folder} belongs to another user, so nothing in it could be "
                f"changed; unpack it as the user with the id {self._owner}"
            )


def _name(source: ImageSource) -> str:
    """Return the name that a root file system for an image has."""
    if source.dockerfile is None:
        return re.sub(r"[^\w.-]", "-", source.image or "")
    name = source.dockerfile.name
    return (
        name.removesuffix(".Dockerfile") if name != "Dockerfile" else source.dockerfile.parent.name
    )


def _is_root(folder: Path) -> bool:
    return os.path.lexists(folder / "usr/bin/bash") or os.path.lexists(folder / "bin/bash")


def _text(dockerfile: Path) -> str:
    try:
        return dockerfile.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{dockerfile}: cannot be read: {error}") from None


def _is_plain(dockerfile: str) -> bool:
    """Whether a Dockerfile does nothing but install Debian packages."""
    lines = dockerfile.replace("\\\n", " ").splitlines()
    steps = [" ".join(line.split()) for line in lines if line.strip()]
    plain = all(step.startswith("#") or _PLAIN.fullmatch(step) for step in steps)
    return plain and _INSTALL.search(dockerfile) is not None


def _missing(dockerfile: str) -> Iterator[str]:
    """Name the Debian packages that a Dockerfile installs and that this machine lacks."""
    if not _STATUS.is_file():
        return  # no Debian: what is there is found out by using it
    installed = {name.split(":")[0] for name in _INSTALLED.findall(_STATUS.read_text("utf-8"))}
    for command in _INSTALL.findall(dockerfile):
        for word in command.replace("\\\n", " ").split():
            if not word.startswith("-") and word not in installed:
                yield word
