"""Gets files of the repository into a folder: whole and right, or not at all.

What is not whole yet lies in ``.unfinished`` in that folder, which goes with the run; the next run
removes what one that was killed left there. Nothing is in its place before its SHA-256 is right.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from pytest_intercode.errors import FetchError
from pytest_intercode.suites.upstream import RemoteFile

__all__ = ["Progress", "download", "install", "is_whole", "workplace"]

_WAITS = (1.0, 3.0)  # seconds before the second and the third try
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 65536


class Progress(Protocol):
    """What a download tells of itself; pooch's own interface of a progress bar."""

    total: int

    def update(self, size: int) -> None:
        """Take note of some more bytes."""

    def reset(self) -> None:
        """Begin counting anew."""

    def close(self) -> None:
        """The file is there."""


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """Hold a folder, and yield a place in it for what is not whole yet.

    Raises:
        FetchError: it cannot be made or written to, or another process holds it.
    """
    unfinished = folder / ".unfinished"
    with contextlib.ExitStack() as at_end:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            holder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            at_end.callback(os.close, holder)
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
        except BlockingIOError:
            raise FetchError(
                f"{folder}: another fetch is at work there; wait for it, or give another --to"
            ) from None
        except OSError as error:
            raise FetchError(f"{folder}: cannot be written to: {error.strerror}") from None
        at_end.callback(shutil.rmtree, unfinished, ignore_errors=True)
        try:
            yield unfinished
        except OSError as error:
            raise FetchError(f"{folder}: cannot be written to: {error}") from None


def is_whole(path: Path, file: RemoteFile) -> bool:
    """Whether a file is there and right."""
    try:
        if path.stat().st_size != file.size:
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    except OSError:
        return False


def download(file: RemoteFile, base: str, place: Path, progress: Progress) -> Path:
    """Get one file.

    Args:
        file: the file.
        base: the address that its path is below.
        place: a folder for it, from :func:`workplace`.
        progress: is told of every piece.

    Returns:
        Where in ``place`` it is, whole and right.

    Raises:
        FetchError: it could not be had, or it is another file than the one that is known.
    """
    if not file.size:  # nothing to ask for
        made = place / "empty"
        made.touch()
        return made
    try:
        import pooch  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise FetchError("fetching needs pooch: pip install 'pytest-intercode[fetch]'") from None
    from requests.exceptions import HTTPError, RequestException

    pooch.get_logger().setLevel("ERROR")
    url = f"{base.rstrip('/')}/{quote(file.path)}"
    get = pooch.HTTPDownloader(progressbar=progress, chunk_size=_CHUNK, timeout=_TIMEOUT)
    for wait in (*_WAITS, None):
        try:
            return Path(
                pooch.retrieve(
                    url, f"sha256:{file.sha256}", fname="file", path=place, downloader=get
                )
            )
        except HTTPError as error:
            why = f"the server says {error.response.status_code} {error.response.reason}"
            if error.response.status_code < 500:
                raise FetchError(f"{url}: {why}") from None
        except RequestException as error:
            why = _plain(error, url)
        except ValueError:
            raise FetchError(
                f"{url}: this is not the file that is known (its SHA-256 is not {file.sha256}); "
                "nothing of it was kept"
            ) from None
        if wait is not None:
            time.sleep(wait)
    raise FetchError(f"{url}: {why}")


def install(path: Path, target: Path, mode: int) -> None:
    """Put a whole file in its place, in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    path.replace(target)


def _plain(error: Any, url: str) -> str:
    """Say what became of a connection, without the layers that it went through."""
    from requests.exceptions import ChunkedEncodingError, Timeout

    if isinstance(error, Timeout):
        return f"no answer within {_TIMEOUT:g} s"
    if isinstance(error, ChunkedEncodingError):
        return "the connection broke off"
    cause: BaseException | None = error
    said = ""
    while cause is not None:
        said = getattr(cause, "strerror", None) or said
        cause = cause.__cause__ or cause.__context__ or getattr(cause, "reason", None)
    host = urlsplit(url).netloc
    return f"{host} cannot be reached" + (f": {said}" if said else f": {error}")
