"""The digest of a task, which shows whether the task has changed since a result was recorded.

Computing it reads the files that a task names. This is done when a record is written or a run is
resumed, never when tasks are collected.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

from pytest_intercode.core.task import (
    Archive,
    Database,
    FileSpec,
    ImageSource,
    Repository,
    Services,
    Task,
    TaskFields,
)
from pytest_intercode.errors import SuiteError
from pytest_intercode.system.archives import build_archive, context_files
from pytest_intercode.system.beneath import Item, Root

__all__ = ["PARTS", "digest", "file_digest", "value_digest"]

PARTS = (
    *("query", "gold", "env", "files", "archive", "setup", "image", "workdir", "limits", "reward"),
    *("verification", "user", "variables", "steps", "overall", "judge", "conversation", "mounts"),
    "services",
)
"""The fields of a task in its digest: what the agent gets, and what it is graded by.

The fields of its environment are added, except for those that are not graded.

The task's source, labels, number of turns and time limits are not part of the digest. Neither is an
image that the environment chooses; records name it separately.
"""

# Left out of the digest if they have these values, so that older digests stay valid.
_LATER_DEFAULTS: dict[str, Any] = {"verification": None, "user": "", "overall": "mean"}
_LATER_DEFAULTS |= {"variables": (), "steps": (), "judge": None, "conversation": None}
_LATER_DEFAULTS |= {"mounts": (), "services": Services()}
_LATER_FIELDS = {"hosts", "lenient", "offline", "fetches", "carried", "evidence", "service"}
_LATER_FIELDS |= {"read_only"}
# Every task had these fields once, so they are always part of the digest.
_FIRST_FIELDS: dict[str, Any] = {"database": None, "tests": [], "test_setup": "", "entry": ""}
_FILE_PARTS = ("archive", "mounts", "services", "image", "verification", "steps", "files")
"""Parts that name files or are mutable; the digest of a task without them cannot change."""

_MAX_LATEST = 256  # digests that are kept
_latest: dict[int, tuple[Task, str]] = {}  # a cache, as an episode asks for its digest repeatedly
_LENGTH = 16  # hexadecimal digits
_BLOCK = 2**20  # bytes that are read at a time
_JSON = json.JSONEncoder(sort_keys=True, default=lambda value: f"{type(value)} {value}")
_READ_LOCK = threading.Lock()  # so that simultaneous requests read a file only once

_State: TypeAlias = "tuple[tuple[str, int, int, int], ...]"


def digest(task: Task) -> str:
    """Return 16 hexadecimal digits of SHA-256 over :data:`PARTS`, including the content of files.

    A missing file is not an error, but part of the digest. The content of each file is read once in
    a process, and again if its size or its time changed.
    """
    cached = _latest.get(id(task))
    if cached is not None:
        return cached[1]
    values = {name: getattr(task, name) for name in PARTS}
    content = {
        name: _canonical(value)
        for name, value in values.items()
        if name not in _LATER_DEFAULTS or value != _LATER_DEFAULTS[name]
    }
    own_content = _canonical_fields(task.fields)
    content |= _FIRST_FIELDS | own_content
    task_digest = hashlib.sha256(_JSON.encode(content).encode("ascii")).hexdigest()[:_LENGTH]
    if not own_content and not any(map(values.get, _FILE_PARTS)):
        if len(_latest) >= _MAX_LATEST:
            _latest.clear()
        _latest[id(task)] = task, task_digest  # keep the task, so that its id stays unique
    return task_digest


def _canonical_fields(task_fields: TaskFields) -> dict[str, Any]:
    """Return the environment's own fields that are graded and differ from their defaults."""
    content = {}
    for field in fields(task_fields):
        value = getattr(task_fields, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value != default and field.metadata.get("is_graded", True):
            content[field.name] = _canonical(value)
    return content


def _canonical(value: Any) -> Any:
    """Return a canonical form of a value, in JSON values: equal for equal values."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (tuple, list)):
        return [_canonical(part) for part in value]
    if isinstance(value, FileSpec):
        return {**vars(value), "content": hashlib.sha256(value.content).hexdigest()}
    if isinstance(value, Mapping):
        return {str(name): _canonical(part) for name, part in value.items()}
    if isinstance(value, Archive):
        return [value.at or "/", value.keep_times_before, _digest_archive(value)]
    if isinstance(value, Repository):
        content = [] if value.source is None else [_digest_path(value.source)]
        return [value.at, value.commit, *content]
    if isinstance(value, Database):
        scripts = [_digest_file(path) for path in value.scripts]
        file = None if value.file is None else _digest_file(value.file)
        return [value.engine, value.name, value.writes, scripts, file]
    if isinstance(value, Path):
        return _digest_path(value)
    if isinstance(value, ImageSource):
        context = None if value.dockerfile is None else _digest_context(value.dockerfile)
        context_digests = [[name, _digest_file(path)] for name, path in value.context]
        layers = [_digest_file(path) for path in value.layers]
        return [value.image, context, context_digests, *filter(None, [layers, value.text])]
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: _canonical(part) for name, part in parts if part or name not in _LATER_FIELDS}
    return value


def _digest_path(path: Path) -> str | None:
    return _digest_archive(Archive(path)) if path.is_dir() else _digest_file(path)


def _digest_file(path: Path) -> str | None:
    try:
        with _READ_LOCK:
            return _file_content(path, _file_states(path))
    except OSError:
        return None


def _digest_archive(archive: Archive) -> str | None:
    try:
        with _READ_LOCK:
            return _archive_content(archive, _file_states(archive.path))
    except (OSError, SuiteError):
        return None


@cache
def _digest_context(dockerfile: Path) -> list[list[Any]] | None:
    """Return the files that a build may use; once in a process, because it is built once."""
    try:
        return [
            [name, bool(path.stat().st_mode & 0o100), _digest_file(path)]
            for name, path in context_files(dockerfile)
        ]
    except (OSError, SuiteError):
        return None


def _file_states(path: Path) -> _State:
    """Return what changes with the content of files: names, modes, sizes and times."""
    items = [Item("", path.stat())]
    if stat.S_ISDIR(items[0].status.st_mode):
        with Root(path, links=False) as root:
            items += root.walk()
    return tuple((n, state.st_mode, state.st_size, state.st_mtime_ns) for n, state in items)


@cache
def _file_content(path: Path, state: _State) -> str:
    return file_digest(path)


def file_digest(source: Path | IO[bytes]) -> str:
    """Return the SHA-256 of a file, or of the rest of an open file."""
    content = hashlib.sha256()
    with source.open("rb") if isinstance(source, Path) else nullcontext(source) as file:
        while block := file.read(_BLOCK):
            content.update(block)
    return content.hexdigest()


@cache
def _archive_content(archive: Archive, state: _State) -> str:
    task = Task(id="", query="", gold=(), env="", suite="", dataset="", archive=archive)
    return hashlib.sha256(build_archive(task, mtime=0.0)).hexdigest()


def value_digest(value: object) -> str:
    """Return 16 hexadecimal digits of SHA-256 over a value of the user's test.

    Equal values have equal digests in every run: the order of a mapping or of a set does not count.
    For a function, a class, and any other callable, only the name counts. For an object of another
    type, the result of its pickling methods counts.

    Raises:
        TypeError: a value, such as a lock, has no comparable form.
        RecursionError: a value contains itself.
    """
    return hashlib.sha256(_to_json(_plain(value)).encode("ascii")).hexdigest()[:_LENGTH]


def _to_json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _plain(value: object) -> object:
    """Return a value as JSON values, with keys that can be sorted."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        if any(all(isinstance(key, kind) for key in value) for kind in (str, (int, float))):
            return {key: _plain(part) for key, part in value.items()}
        return sorted(([_plain(key), _plain(part)] for key, part in value.items()), key=_to_json)
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value), key=_to_json)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (Path, bytes)):
        return str(value)
    if isinstance(value, re.Pattern):
        return [_plain(value.pattern), value.flags]
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return _plain(_reduce(value))


def _reduce(value: object) -> object:
    """Return the form in which an object would be pickled, which contains all its state."""
    try:
        parts = value.__reduce_ex__(2)
    except Exception as error:  # whatever its class raises, for example if it cannot be pickled
        raise TypeError(f"nothing says what a {type(value).__qualname__} is") from error
    if isinstance(parts, str):
        return parts
    content, items = parts[:3], parts[3:5]  # the items are iterators
    return [*content, *(list(part) for part in items if part is not None)]
