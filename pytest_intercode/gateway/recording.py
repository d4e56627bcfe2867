"""Exchanges on disk: written as they end, and answered from without any server.

``DIR/EPISODE/NNN.json`` holds one exchange; the number is that of its request in the episode. No
header is written, so no key is either; a key that is in a text is masked.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.apis import Route
from pytest_intercode.gateway.canonical import canonical, digest, first_difference
from pytest_intercode.system.files import read_bounded

__all__ = ["NotRecorded", "RecordedAnswer", "Recorder", "Replayer"]

_VERSION = 1
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME_LENGTH = 80  # characters of a folder's name
_FILE = re.compile(r"\d{3,9}\.json")
_MAX_FILE_SIZE = 256 * 1024 * 1024  # bytes of a recording's file
_TYPES = ("application/json", "text/event-stream")


@dataclass(frozen=True)
class RecordedAnswer:
    """An answer as it was.

    Attributes:
        status: the HTTP status.
        content_type: its media type.
        pieces: the body; of a stream, its events one by one.
        complete: False if it broke off.
    """

    status: int
    content_type: str
    pieces: tuple[str, ...]
    complete: bool = True


class NotRecorded(Exception):
    """The recording has no answer to a request; the message says in one line how it differs."""


def folder_of(root: Path, key: str) -> Path:
    """Return the folder of an episode, whatever its name is made of."""
    name = _NAME.sub("-", key).strip("-.")[:_MAX_NAME_LENGTH]
    if name != key or not name:
        name = (
            f"{name or 'episode'}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:8]}"
        )
    return root / name


class Recorder:
    """Writes the exchanges of one episode; those of an earlier run of it go with the first one.

    Args:
        root: the folder of the run's recordings.
        key: names the episode.
        secrets: texts that are masked: keys.

    Raises:
        ConfigurationError: the folder cannot be written to.
    """

    def __init__(self, root: Path, key: str, secrets: tuple[str, ...]) -> None:
        self._folder = folder_of(root, key)
        self._secrets = secrets
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._folder.is_symlink():
                raise OSError(errno.ELOOP, "its folder is a link")
            self._earlier = [old for old in self._folder.iterdir() if _FILE.fullmatch(old.name)]
        except OSError as error:
            raise ConfigurationError(
                f"exchanges cannot be recorded in {self._folder}: {error.strerror}"
            ) from None

    def write(
        self,
        number: int,
        *,
        route: Route,
        request: Mapping[str, Any],
        token: str,
        answer: Mapping[str, Any] | None,
        recorded: RecordedAnswer,
    ) -> None:
        """Write one exchange.

        Args:
            number: of the request in the episode, from 1.
            route: what was asked.
            request: the parsed body.
            token: of the session; it is masked.
            answer: the parsed answer, put together if it was streamed; None if it is none.
            recorded: the answer as it was.

        Raises:
            OSError: the file cannot be written.
        """
        content = canonical(request, (token,))
        row = {
            "version": _VERSION,
            "method": route.method,
            "path": route.path,
            "model": request.get("model"),
            "digest": digest(route.method, route.path, content),
            "request": request,
            "status": recorded.status,
            "content_type": recorded.content_type,
            "complete": recorded.complete,
            "answer": answer,
            "pieces": recorded.pieces,
        }
        text = json.dumps(row, indent=1, ensure_ascii=True)
        for secret in self._secrets:
            text = text.replace(json.dumps(secret)[1:-1], "***")
        text = text.replace(token, "<token>")
        path_of = self._folder / f"{number:03}.json"
        # A name that nobody knows beforehand, so that it leads nowhere.
        temporary = self._folder / f".{token_hex(8)}"
        with temporary.open("x", encoding="ascii") as file:
            file.write(text)
        while self._earlier:
            self._earlier.pop().unlink(missing_ok=True)
        temporary.replace(path_of)


@dataclass
class _Entry:
    method: str
    path: str
    digest: str
    content: Any
    recorded: RecordedAnswer
    replayed: bool = False


class Replayer:
    """Answers the requests of one episode from its recording.

    Args:
        root: the folder of the run's recordings.
        key: names the episode.

    Raises:
        ConfigurationError: a file is not a recording.
    """

    def __init__(self, root: Path, key: str) -> None:
        self._folder = folder_of(root, key)
        self._key = key
        paths = self._folder.iterdir() if self._folder.is_dir() else ()
        files = [path for path in paths if _FILE.fullmatch(path.name)]
        files.sort(key=lambda path: int(path.stem))
        self._entries = [_read_entry(path) for path in files]

    def answer(self, route: Route, request: Mapping[str, Any], token: str) -> RecordedAnswer:
        """Return the answer to a request: the first that is not used up of those to its like.

        Raises:
            NotRecorded: there is none.
        """
        content = canonical(request, (token,))
        # The recording masks the token, too.
        method, path = route.method, route.path
        request_digest = digest(method, path, content)
        alike = [entry for entry in self._entries if entry.digest == request_digest]
        for entry in alike:
            if not entry.replayed:
                entry.replayed = True
                return entry.recorded
        description = (
            f"{method} {path}, model {request.get('model')!s:.60}, digest {request_digest}"
        )
        raise NotRecorded(f"{description}: {self._mismatch(method, path, content, len(alike))}")

    def _mismatch(self, method: str, path: str, content: Any, alike: int) -> str:
        if not self._entries:
            return f"nothing is recorded for the episode {self._key!r:.80} ({self._folder})"
        if alike:
            return f"recorded {alike} times, and asked once more"
        unused = [
            entry
            for entry in self._entries
            if not entry.replayed and (entry.method, entry.path) == (method, path)
        ]
        if not unused:
            return "the recording has no further request of this route"
        return f"not recorded; {first_difference(unused[0].content, content)}"


def _read_entry(path: Path) -> _Entry:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # a recording may come from anybody
            raise ValueError("it is not a regular file")
        data = read_bounded(path, _MAX_FILE_SIZE)
        if data is None:
            raise ValueError("it has more than 256 MiB")
        row = json.loads(data)
        if row["version"] != _VERSION:
            raise ValueError("of another version")
        status, pieces = row["status"], row["pieces"]
        whole = isinstance(status, int) and not isinstance(status, bool)
        if row["content_type"] not in _TYPES or not whole or not 200 <= status <= 599:
            raise ValueError("its status or its type is none of an answer")
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise ValueError("its pieces are not texts")
        "".join(pieces).encode("utf-8")  # a lone surrogate cannot be sent
        method, route = str(row["method"]), str(row["path"])
        content = canonical(row["request"])
        recorded = RecordedAnswer(
            status, str(row["content_type"]), tuple(pieces), bool(row["complete"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} is not a recording of the gateway: {type(error).__name__}: {error!s:.100}"
        ) from None
    return _Entry(method, route, digest(method, route, content), content, recorded)
