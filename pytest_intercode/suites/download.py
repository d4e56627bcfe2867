"""Downloads files of InterCode's repository into a folder: complete and correct, or not at all.

A file is written in ``.unfinished`` in that folder, and moved to its destination when its hash is
correct. The run removes ``.unfinished``; if it is killed, the next run does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from pytest_intercode.errors import FetchError
from pytest_intercode.suites.upstream import RemoteFile
from pytest_intercode.system.extras import need
from pytest_intercode.system.platform import lockable, try_lock

if TYPE_CHECKING:
    from requests.exceptions import RequestException

__all__ = ["download", "install", "is_whole", "unpack", "workplace"]

_RETRY_DELAYS = (1.0, 3.0)  # seconds before the second and the third try
_MAX_PAUSE = 60.0  # maximum seconds before another try, if the server asks for a pause
_TOO_MANY_REQUESTS = 429  # an HTTP status, which GitHub returns after a thousand files
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 65536  # bytes
_MAX_BYTES = 100 * 1024**2  # bytes of a file of unknown size; GitHub does not accept larger ones


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """Lock a folder, and yield a folder in it for incomplete files.

    Raises:
        FetchError: it cannot be created or written to, or another process has locked it.
    """
    unfinished = folder / ".unfinished"
    with contextlib.ExitStack() as at_end:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            holder = lockable(folder)
            at_end.callback(os.close, holder)
            if not try_lock(holder):
                raise FetchError(
                    f"{folder}: another fetch is writing to it; wait for that, or give another --to"
                )
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
        except OSError as error:
            raise FetchError(f"{folder}: cannot be written to: {error.strerror}") from None
        at_end.callback(shutil.rmtree, unfinished, ignore_errors=True)
        try:
            yield unfinished
        except OSError as error:
            raise FetchError(f"{folder}: cannot be written to: {error}") from None


def is_whole(path: Path, file: RemoteFile) -> bool:
    """Whether a file exists and has the correct content."""
    try:
        has_size = file.size is None or path.stat().st_size == file.size
        return has_size and file.is_content(path.read_bytes())
    except OSError:
        return False


def download(file: RemoteFile, base: str, folder: Path, label: str) -> Path:
    """Download one file; a terminal shows its progress.

    Args:
        file: the file.
        base: the base URL of its path.
        folder: a folder for it, from :func:`workplace`.
        label: the beginning of the progress bar.

    Returns:
        The path of the complete and correct file in ``folder``.

    Raises:
        FetchError: the download failed, or its hash is not the known one.
    """
    if file.size == 0:  # there is nothing to download
        empty_file = folder / "empty"
        empty_file.touch()
        return empty_file
    try:
        import pooch  # type: ignore[import-untyped]
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ModuleNotFoundError as missing:
        raise FetchError(need("fetch", "fetching", str(missing.name))) from None
    pooch.get_logger().setLevel("ERROR")
    bar = tqdm(desc=label, total=file.size, unit="B", unit_scale=True, leave=False, disable=None)
    with bar:  # disable=None shows it only on a terminal

        def get(url: str, path: str, _: object) -> None:
            _get(url, Path(path), _MAX_BYTES if file.size is None else file.size, bar.update)

        return _retrieve(file, f"{base.rstrip('/')}/{quote(file.path)}", folder, get)


def _get(url: str, path: Path, max_size: int, report_progress: Callable[[int], object]) -> None:
    """Download a file; stop if the server sends more bytes than expected."""
    import requests

    remaining = max_size
    with requests.get(url, timeout=_TIMEOUT, stream=True) as response, path.open("wb") as output:
        response.raise_for_status()
        for chunk in response.iter_content(_CHUNK):  # decompressed, if the server compresses it
            remaining -= len(chunk)
            if remaining < 0:
                raise FetchError(
                    f"{url}: this is not the expected file (it has more than {max_size:,} bytes); "
                    "nothing of it was kept"
                )
            output.write(chunk)
            report_progress(len(chunk))


def _retrieve(file: RemoteFile, url: str, folder: Path, get: Callable[..., None]) -> Path:
    import pooch
    from requests.exceptions import HTTPError, RequestException

    for wait in (*_RETRY_DELAYS, None):
        try:
            (folder / "file").unlink(missing_ok=True)
            path = Path(pooch.retrieve(url, None, fname="file", path=folder, downloader=get))
        except HTTPError as error:
            status = error.response.status_code
            reason = f"the server says {status} {error.response.reason}"
            if status < 500 and status != _TOO_MANY_REQUESTS:
                raise FetchError(f"{url}: {reason}") from None
            pause = error.response.headers.get("Retry-After", "")
            if wait is not None and pause.isdecimal():  # it may also be a date, which is ignored
                wait = max(wait, min(float(pause), _MAX_PAUSE))
        except RequestException as error:
            reason = _reason(error, url)
        else:
            if is_whole(path, file):
                return path
            path.unlink()
            raise FetchError(
                f"{url}: this is not the expected file (its hash is not {file.digest}); "
                "nothing of it was kept"
            )
        if wait is not None:
            time.sleep(wait)
    raise FetchError(f"{url}: {reason}")


def install(path: Path, target: Path, mode: int) -> None:
    """Move a complete file to its destination, atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    path.replace(target)


def unpack(archive: Path, start: str, folder: Path) -> None:
    """Unpack the entries of a checked ZIP archive below a path; existing files are replaced.

    Args:
        archive: the archive.
        start: the beginning of the paths of the entries to unpack.
        folder: the folder for the rest of those paths.
    """
    with zipfile.ZipFile(archive) as entries:
        for entry in entries.infolist():
            if entry.filename.startswith(start) and not entry.filename.endswith("/"):
                path = folder / entry.filename.removeprefix(start)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(entries.read(entry))
                path.chmod(entry.external_attr >> 16 & 0o777)


def _reason(error: RequestException, url: str) -> str:
    """Return why a connection failed, without the layers of exceptions around it."""
    from requests.exceptions import ChunkedEncodingError, Timeout

    if isinstance(error, Timeout):
        return f"no answer within {_TIMEOUT:g} s"
    if isinstance(error, ChunkedEncodingError):
        return "the connection broke off"
    cause: BaseException | None = error
    detail = ""
    while cause is not None:
        detail = getattr(cause, "strerror", None) or detail
        cause = cause.__cause__ or cause.__context__ or getattr(cause, "reason", None)
    host = urlsplit(url).netloc
    return f"{host} cannot be reached" + (f": {detail}" if detail else f": {error}")
