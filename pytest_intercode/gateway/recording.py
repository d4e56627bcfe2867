"""Recorded exchanges: written when they end, and replayed without a server.

:func:`make_row` converts an exchange to a row, and :func:`read_row` reads it. Headers are not
written, and keys are masked (:mod:`~pytest_intercode.gateway.masking`). In a run's folder, the
files are ``DIR/EPISODE/NNN.json``, where the number is that of the request in the episode. The
single file of a project test is written by ``projects/``.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.apis import Route
from pytest_intercode.gateway.canonical import (
    canonical,
    digest,
    first_difference,
    mask_text,
    without_order,
)
from pytest_intercode.gateway.masking import Masks, has_mask, map_texts, matches_masked
from pytest_intercode.system.files import read_bounded

__all__ = [
    "EpisodeRecording",
    "FolderRecorder",
    "NotRecorded",
    "RecordedAnswer",
    "RecordedExchange",
    "Recorder",
    "Replayer",
    "folder_replayer",
    "make_row",
    "read_row",
]

_VERSION = 1
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME_LENGTH = 80  # characters of a folder's name
_FILE = re.compile(r"\d{3,9}\.json")
_MAX_FILE_SIZE = 256 * 1024 * 1024  # bytes of a recording's file
_TOKEN = "<token>"  # replaces the session's token
_TYPES = ("application/json", "text/event-stream")


@dataclass(frozen=True)
class RecordedAnswer:
    """A raw answer.

    Attributes:
        status: the HTTP status.
        content_type: its media type.
        pieces: the body; for a stream, its individual events.
        complete: False if it broke off.
    """

    status: int
    content_type: str
    pieces: tuple[str, ...]
    complete: bool = True


class NotRecorded(Exception):
    """The recording has no answer to a request; the message says in one line how it differs."""


def folder_of(root: Path, key: str) -> Path:
    """Return the folder of an episode, whatever characters its key contains."""
    name = _NAME.sub("-", key).strip("-.")[:_MAX_NAME_LENGTH]
    if name != key or not name:
        name = (
            f"{name or 'episode'}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:8]}"
        )
    return root / name


def make_row(
    route: Route, request: Mapping[str, Any], token: str, recorded: RecordedAnswer, masks: Masks
) -> dict[str, Any]:
    """Return the row that is written for an exchange, as JSON values.

    Args:
        route: the route of the request.
        request: the parsed body.
        token: the session's token, which is masked.
        recorded: the answer.
        masks: masks everything else.
    """
    pieces = recorded.pieces
    if recorded.content_type == "text/event-stream":
        pieces = masks.stream(pieces)
    else:
        pieces = tuple(map(masks.body, pieces))
    return {
        "method": route.method,
        "path": route.path,
        "model": request.get("model"),
        "request": map_texts(request, lambda text: masks.text(text.replace(token, _TOKEN))),
        "status": recorded.status,
        "content_type": recorded.content_type,
        "complete": recorded.complete,
        "pieces": [piece.replace(token, _TOKEN) for piece in pieces],
    }


class Recorder(ABC):
    """Records the exchanges of one episode.

    Args:
        masks: masks what no recording may contain.
    """

    def __init__(self, masks: Masks) -> None:
        self.masks = masks

    @abstractmethod
    def begin(self) -> None:
        """Discard earlier exchanges: the episode starts, for the first time or again."""

    @abstractmethod
    def write(self, number: int, row: dict[str, Any], answer: Mapping[str, Any] | None) -> None:
        """Keep one exchange; called from threads, possibly simultaneously.

        Args:
            number: the number of the request in its session, from 1.
            row: the result of :func:`make_row`.
            answer: the parsed answer, assembled if it was streamed; None if it is not an object.

        Raises:
            OSError: it cannot be written.
        """


class FolderRecorder(Recorder):
    """Writes a file per exchange; the first one replaces those of an earlier run of the episode.

    Args:
        root: the folder of the run's recordings.
        key: identifies the episode.
        masks: as for every recorder.

    Raises:
        ConfigurationError: the folder cannot be written to.
    """

    def __init__(self, root: Path, key: str, masks: Masks) -> None:
        super().__init__(masks)
        self._folder = folder_of(root, key)
        self._lock = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._folder.is_symlink():
                raise OSError(errno.ELOOP, "its folder is a link")
            self._earlier = [old for old in self._folder.iterdir() if _FILE.fullmatch(old.name)]
        except OSError as error:
            raise ConfigurationError(
                f"exchanges cannot be recorded in {self._folder}: {error.strerror}"
            ) from None

    def begin(self) -> None:
        """Do nothing: the first exchange removes earlier ones."""

    def write(self, number: int, row: dict[str, Any], answer: Mapping[str, Any] | None) -> None:
        """Write a file."""
        content = canonical(row["request"])
        row = {
            "version": _VERSION,
            "digest": digest(row["method"], row["path"], content),
            **row,
            "answer": self.masks.value(answer),
        }
        path_of = self._folder / f"{number:03}.json"
        # An unpredictable name, so that nobody can put a link there beforehand.
        temporary = self._folder / f".{token_hex(8)}"
        try:
            with temporary.open("x", encoding="ascii") as file:
                file.write(json.dumps(row, indent=1, ensure_ascii=True))
            with self._lock:  # remove earlier files before any new file gets its name
                while self._earlier:
                    self._earlier.pop().unlink(missing_ok=True)
            temporary.replace(path_of)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


@dataclass(frozen=True)
class RecordedExchange:
    """A recorded exchange.

    Attributes:
        method: the method of its route.
        path: the path of its route.
        model: the requested model; empty if a request names none.
        digest: the digest of the canonical request.
        content: the canonical request.
        recorded: the answer.
    """

    method: str
    path: str
    model: str
    digest: str
    content: Any
    recorded: RecordedAnswer

    @cached_property
    def loose_digest(self) -> str:
        """The digest of the canonical request without the order of its lines."""
        return digest(self.method, self.path, without_order(self.content))

    @cached_property
    def has_mask(self) -> bool:
        """Whether something in the request was masked."""
        return has_mask(json.dumps(self.content))


class Replayer:
    """Answers the requests of one episode from its recording.

    Args:
        exchanges: the recording.
        where: a description of the episode and the recording, for messages.
        masks: masks requests before they are compared with the recorded ones.
        remedy: the end of messages about requests that are not recorded.
    """

    def __init__(
        self, exchanges: Sequence[RecordedExchange], where: str, masks: Masks, remedy: str = ""
    ) -> None:
        self._exchanges = exchanges
        self._where = where
        self._masks = masks
        self._remedy = remedy
        self.begin()

    def begin(self) -> None:
        """Restart at the beginning: the episode starts, for the first time or again."""
        self._used: set[int] = set()
        # Cache results, as each request repeats the texts of earlier ones.
        masks = self._masks
        self._clean = lru_cache(None)(lambda text, token: masks.text(text.replace(token, _TOKEN)))
        self._mask = lru_cache(None)(mask_text)

    def answer(self, route: Route, request: Mapping[str, Any], token: str) -> RecordedAnswer:
        """Return the first unused answer to an equivalent recorded request.

        Raises:
            NotRecorded: there is none.
        """
        masked = map_texts(request, lambda text: self._clean(text, token))
        content = canonical(masked, self._mask)
        method, path = route.method, route.path
        request_digest = digest(method, path, content)
        alike = self._find(method, path, content, request_digest)
        for number in alike:
            if number not in self._used:
                self._used.add(number)
                return self._exchanges[number].recorded
        description = (
            f"{method} {path}, model {request.get('model')!s:.60}, digest {request_digest}"
        )
        mismatch = self._mismatch(method, path, content, len(alike))
        raise NotRecorded(f"{description}: {mismatch}{self._remedy}")

    def _find(self, method: str, path: str, content: Any, request_digest: str) -> list[int]:
        """Return the equal recorded requests, or those that differ only in line order or masks."""
        numbers = range(len(self._exchanges))
        alike = [n for n in numbers if self._exchanges[n].digest == request_digest]
        if alike:
            return alike
        loose_digest = digest(method, path, without_order(content))
        alike = [n for n in numbers if self._exchanges[n].loose_digest == loose_digest]
        if alike:
            return alike
        return [
            number
            for number in numbers
            if (self._exchanges[number].method, self._exchanges[number].path) == (method, path)
            and self._exchanges[number].has_mask
            and matches_masked(self._exchanges[number].content, content)
        ]

    def _mismatch(self, method: str, path: str, content: Any, alike: int) -> str:
        if not self._exchanges:
            return f"nothing is recorded for {self._where}"
        if alike:
            return f"recorded {alike} times, and asked once more"
        unused = [
            exchange
            for number, exchange in enumerate(self._exchanges)
            if number not in self._used and (exchange.method, exchange.path) == (method, path)
        ]
        if not unused:
            return "the recording has no further request of this route"
        # Requests for a title or a summary have other tools: comparing with them is of no use.
        alike_tools = [
            exchange for exchange in unused if exchange.content.get("tools") == content.get("tools")
        ]
        return f"not recorded; {first_difference((alike_tools or unused)[0].content, content)}"


def folder_replayer(root: Path, key: str, masks: Masks) -> Replayer:
    """Return a replayer for a run's folder of recordings.

    Args:
        root: the folder.
        key: identifies the episode.
        masks: masks requests.

    Raises:
        ConfigurationError: a file is not a recording.
    """
    folder = folder_of(root, key)
    paths = folder.iterdir() if folder.is_dir() else ()
    files = [path for path in paths if _FILE.fullmatch(path.name)]
    files.sort(key=lambda path: int(path.stem))
    return Replayer(
        [_read_file(path) for path in files], f"the episode {key!r:.80} ({folder})", masks
    )


def _read_file(path: Path) -> RecordedExchange:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # recordings are not trusted
            raise ValueError("it is not a regular file")
        data = read_bounded(path, _MAX_FILE_SIZE)
        if data is None:
            raise ValueError("it has more than 256 MiB")
        row = json.loads(data)
        if row["version"] != _VERSION:
            raise ValueError("of another version")
        return read_row(row)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} is not a recording of the gateway: {type(error).__name__}: {error!s:.100}"
        ) from None


def read_row(row: Any, mask: Callable[[str], str] = mask_text) -> RecordedExchange:
    """Return the exchange of a row that :func:`make_row` made.

    Args:
        row: the row.
        mask: :func:`mask_text`, or a version of it that caches its results.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, RecursionError: it is not such a row.
    """
    status, pieces = row["status"], row["pieces"]
    whole = isinstance(status, int) and not isinstance(status, bool)
    if row["content_type"] not in _TYPES or not whole or not 200 <= status <= 599:
        raise ValueError("its status or its type is none of an answer")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError("its pieces are not texts")
    "".join(pieces).encode("utf-8")  # a lone surrogate cannot be sent
    method, path, model = str(row["method"]), str(row["path"]), row["request"].get("model")
    content = canonical(row["request"], mask)
    recorded = RecordedAnswer(
        status, str(row["content_type"]), tuple(pieces), bool(row["complete"])
    )
    return RecordedExchange(
        *(method, path, str(model or ""), digest(method, path, content), content, recorded)
    )


@dataclass(frozen=True)
class EpisodeRecording:
    """The recorder or the replayer of one episode; neither if both are None."""

    recorder: Recorder | None = None
    replayer: Replayer | None = None

    def begin(self) -> None:
        """Start with the first exchange, for the first time or again."""
        if self.recorder is not None:
            self.recorder.begin()
        if self.replayer is not None:
            self.replayer.begin()
