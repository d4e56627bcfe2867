"""The context of a build, as an archive, and a lock so that an image is built only once."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import os
import posixpath
import re
import stat
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pytest_intercode.core.dockerfile import read_instructions, replace_spans
from pytest_intercode.errors import ImageError
from pytest_intercode.system.archives import add_entry, context_files
from pytest_intercode.system.files import cache_folder
from pytest_intercode.system.platform import try_lock

__all__ = [
    *("RUN_IS_OVER", "build_context", "copied_modes", "describe_build", "one_builder"),
    "read_dockerfile",
]

RUN_IS_OVER = "the run is over, and no image is built any more"

_MAX_LOCK_NAME = 100  # characters of an image's name in the name of its lock file
_LOCK_INTERVAL = 0.1  # seconds between two tries to lock an image that is being made


def read_dockerfile(path: Path) -> str:
    """Return the text of a Dockerfile.

    Raises:
        ImageError: it cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{path}: cannot be read: {error}") from None


def describe_build(name: str, dockerfile: Path, purpose: str) -> str:
    """Return the line of progress for the build of an image, whether its task is known or not."""
    origin = f"for {purpose}" if purpose else f"from {dockerfile.name}"
    return f"building {name} {origin} (first use)"


def copied_modes(text: str) -> tuple[str, dict[str, int]]:
    """Return a Dockerfile without ``--chmod``, and the modes of the files copied with it.

    The builder in the engine's API does not know the option, so the files of the context get the
    modes.
    """
    modes: dict[str, int] = {}
    spans: list[tuple[tuple[int, int], str]] = []
    for instruction in read_instructions(text):
        if instruction.name not in ("COPY", "ADD"):
            continue
        for flag, value, index in instruction.flags():
            if flag == "chmod" and re.fullmatch("0?[0-7]{3,4}", value):
                end = index + len(value)
                end += len(instruction.rest[end:]) - len(instruction.rest[end:].lstrip())
                spans.append((instruction.span(index - len("--chmod="), end), ""))
                for name in instruction.rest[instruction.arguments_index :].split()[:-1]:
                    if not name.startswith("--"):
                        modes[posixpath.normpath(name)] = int(value, 8)
    return replace_spans(text, spans), modes


def build_context(
    dockerfile: Path,
    more: Iterable[tuple[str, Path]] = (),
    text: str | None = None,
    modes: Mapping[str, int] | None = None,
    *,
    alone: bool = False,
) -> bytes:
    """Return the context of a build as a tar archive, which depends only on names and bytes.

    Of the modes, it has what git keeps of them: whether the owner may execute a file.

    Args:
        dockerfile: the Dockerfile.
        more: further files, by their names in the archive.
        text: the text that is built instead of the Dockerfile's own; None for its own.
        modes: modes of files by their names in the archive, which may be patterns or folders.
        alone: the Dockerfile is the only file that is used.
    """
    files = [(dockerfile.name, dockerfile)] if alone else context_files(dockerfile)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in (*files, *more):
            try:
                data = path.read_bytes()
                runs = path != dockerfile and path.stat().st_mode & stat.S_IXUSR
            except OSError as error:
                raise ImageError(f"{path}: cannot be read: {error.strerror}") from None
            if path == dockerfile and text is not None:
                data = text.encode()
            mode = 0o755 if runs else 0o644
            for pattern, new_mode in (modes or {}).items():
                if fnmatch.fnmatch(name, pattern) or f"{name}/".startswith(f"{pattern}/"):
                    mode = new_mode
            add_entry(archive, name, data, mode)
    return buffer.getvalue()


@contextlib.contextmanager
def one_builder(tag: str, stopped: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Let only one thread of this user's processes make a given image at a time.

    Args:
        tag: the image.
        stopped: returns whether waiting is of no use any more.

    Raises:
        ImageError: ``stopped`` returns true, or the folder for the locks cannot be made.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"{folder} is needed for the locks of image builds: {error}") from None
    words = re.sub(r"[^a-z0-9]", "-", tag)[:_MAX_LOCK_NAME]
    path = folder / f"{words}-{hashlib.sha256(tag.encode()).hexdigest()[:12]}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        while not try_lock(descriptor):
            if stopped():
                raise ImageError(RUN_IS_OVER)
            time.sleep(_LOCK_INTERVAL)
        yield
    finally:
        os.close(descriptor)
