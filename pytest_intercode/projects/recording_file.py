"""The file of one recording: lines of JSON in gzip, which begin with a head and end with a digest.

::

    {"intercode_recording": 1, "test": ..., "prompt": ..., ...}    the head
    {"path": "/v1/responses", "parts": [...], "lists": ..., ...}   one line for each exchange
    {"record": {...}, "run": {...}}                                the result of the episode
    {"end": "SHA-256 of all before it"}

Each request of an agent repeats the conversation. So an element of a request's lists is written
once, in ``parts`` of the first exchange that has it, and ``lists`` has the numbers of parts.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import threading
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.canonical import mask_text
from pytest_intercode.gateway.masking import Masks
from pytest_intercode.gateway.recording import RecordedExchange, Recorder, read_row
from pytest_intercode.system.files import read_bounded, writing

__all__ = ["FORMAT_VERSION", "MAX_SIZE", "ExchangeLines", "FileContent", "read_file", "write_file"]

FORMAT_VERSION = 1
"""The version of the format that recordings are written in."""

MAX_SIZE = 8 * 2**20
"""The largest size of a recording, in bytes, packed."""

_MAX_UNPACKED = 128 * 2**20  # bytes of its lines
_MAX_REQUESTS = 512 * 2**20  # bytes of its requests, in which parts may be repeated
_MARK = "intercode_recording"
_LISTS = ("messages", "input", "tools", "system")
_LEVEL = 9  # of gzip; a recording is written once and kept in a repository


class FileContent(NamedTuple):
    """The content of a recording's file.

    Attributes:
        head: the head, without the version of the format.
        exchanges: the exchanges, in the order in which they ended.
        record: the line of the episode's record; None if there is none.
        run: what else is kept about the run.
    """

    head: Mapping[str, Any]
    exchanges: Sequence[RecordedExchange]
    record: Mapping[str, Any] | None
    run: Mapping[str, Any]


class ExchangeLines(Recorder):
    """Keeps the exchanges of an episode as the lines of a file.

    Attributes:
        lines: the lines so far.
        models: the models that were asked.
    """

    def __init__(self, masks: Masks) -> None:
        super().__init__(masks)
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Forget all exchanges."""
        self.lines: list[str] = []
        self.models: set[str] = set()
        self._parts: dict[bytes, int] = {}
        self._size = self._requests_size = 0

    @property
    def is_full(self) -> bool:
        """Whether the exchanges exceed the limits, so that nothing may be written."""
        return self._size > _MAX_UNPACKED or self._requests_size > _MAX_REQUESTS

    def write(self, number: int, row: dict[str, Any], answer: Mapping[str, Any] | None) -> None:
        """Add the line of an exchange."""
        with self._lock:
            if self.is_full:
                return
            line = _dump(self._deduplicate(row))
            self._size += len(line)
            if self.is_full:
                self.lines = []  # free the memory
                return
            self.lines.append(line)
            if row["model"]:
                self.models.add(str(row["model"]))

    def _deduplicate(self, row: Mapping[str, Any]) -> dict[str, Any]:
        request = dict(row["request"])
        lists: dict[str, list[int]] = {}
        parts: list[Any] = []
        for name in _LISTS:
            if isinstance(request.get(name), list):
                lists[name] = [self._number(part, parts) for part in request.pop(name)]
        return {**row, "request": request, "lists": lists, "parts": parts}

    def _number(self, part: Any, parts: list[Any]) -> int:
        text = _dump(part).encode("ascii")
        self._requests_size += len(text)
        key = hashlib.blake2b(text, digest_size=16).digest()
        if key not in self._parts:
            self._parts[key] = len(self._parts)
            parts.append(part)
        return self._parts[key]


def write_file(
    path: Path,
    head: Mapping[str, Any],
    exchanges: Sequence[str],
    record: Mapping[str, Any] | None,
    run: Mapping[str, Any],
) -> None:
    """Write a recording, whole or not at all; equal content makes equal bytes.

    Args:
        path: the file; missing folders above it are made.
        head: what it was made with.
        exchanges: the lines of :class:`ExchangeLines`.
        record: the line of the episode's record.
        run: what else is kept.

    Raises:
        ConfigurationError: it is too large, or cannot be written.
    """
    lines = [
        _dump({_MARK: FORMAT_VERSION, **head}),
        *exchanges,
        _dump({"record": record, "run": run}),
    ]
    text = "".join(f"{line}\n" for line in lines).encode("ascii")
    text += _dump({"end": hashlib.sha256(text).hexdigest()}).encode("ascii") + b"\n"
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as file:
        file.write(text)
    size = packed.tell()
    if size > MAX_SIZE or len(text) > _MAX_UNPACKED:
        raise ConfigurationError(f"{path}: {_describe_size(size, lines)}")
    with writing(path, packed=True) as target:
        target.write(packed.getvalue())


def _describe_size(size: int, lines: Sequence[str]) -> str:
    """Return a message that a recording is too large, with its largest part."""
    largest = max(range(len(lines)), key=lambda number: len(lines[number]))
    if largest == 0:
        name = "its head"
    elif largest == len(lines) - 1:
        name = "the record of the run"
    else:
        name = f"exchange {largest} of {len(lines) - 2}"
    return (
        f"the recording would have {size / 2**20:.1f} MiB, but at most {MAX_SIZE // 2**20} are "
        f"allowed, so it is not written; its largest part is {name}, "
        f"{len(lines[largest]) / 2**20:.1f} MiB unpacked: let the agent read or print less"
    )


def read_file(path: Path) -> FileContent:
    """Read a recording.

    Raises:
        ConfigurationError: it is not a recording, is damaged or too large, or was written by a
            newer version; the message is one line.
        FileNotFoundError: there is no such file.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    problem = "is not a regular file" if not stat.S_ISREG(mode) else ""
    try:
        if not problem:
            return _read(path)
    except _Mistake as mistake:
        problem = str(mistake)
    except gzip.BadGzipFile:
        problem = "is not a recording: it is not a gzip file, or is damaged"
    except (EOFError, zlib.error):
        problem = "is damaged: its gzip data is incomplete or broken"
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        problem = f"is not a recording: {type(error).__name__}: {error!s:.100}"
    raise ConfigurationError(f"{path} {' '.join(problem.split())}")


class _Mistake(Exception):
    """What is wrong with a file, as a text that follows the file's name."""


def _read(path: Path) -> FileContent:
    data = read_bounded(path, _MAX_UNPACKED)
    if data is None:
        raise _Mistake(f"is too large: it has more than {_MAX_UNPACKED // 2**20} MiB unpacked")
    first, *rest = data.splitlines(keepends=True) or [b""]
    head = _parse(first)
    version = head.pop(_MARK, None)
    if isinstance(version, bool) or not isinstance(version, int):
        raise _Mistake("is not a recording: its first line is not a head")
    if version > FORMAT_VERSION:
        raise _Mistake(
            f"has format {version}, of a newer pytest-intercode; this one reads {FORMAT_VERSION}"
        )
    end = _parse(rest.pop()) if rest else {}
    content = data[: len(data) - len(data.splitlines(keepends=True)[-1])]
    if end.get("end") != hashlib.sha256(content).hexdigest():
        raise _Mistake("is damaged: its end is missing, or does not match its content")
    last = _parse(rest.pop())
    parts: list[Any] = []
    sizes: list[int] = []
    requests_size = 0
    exchanges = []
    mask = lru_cache(None)(mask_text)  # most texts are in every request
    for line in rest:
        row = _parse(line)
        parts += row["parts"]
        sizes += (len(_dump(part)) for part in row["parts"])
        for name, numbers in row["lists"].items():
            if any(number < 0 for number in numbers):
                raise IndexError("a part has a negative number")
            requests_size += sum(sizes[number] for number in numbers)
            if requests_size > _MAX_REQUESTS:
                raise _Mistake(
                    f"is too large: its requests have more than {_MAX_REQUESTS // 2**20} MiB"
                )
            row["request"][name] = [parts[number] for number in numbers]
        exchanges.append(read_row(row, mask))
    record = last["record"]
    if not (record is None or isinstance(record, dict)) or not isinstance(last["run"], dict):
        raise _Mistake("is not a recording: its record is not an object")
    return FileContent(head, exchanges, record, last["run"])


def _parse(line: bytes) -> dict[str, Any]:
    content = json.loads(line)
    if not isinstance(content, dict):
        raise TypeError("a line is not an object")
    return content


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
