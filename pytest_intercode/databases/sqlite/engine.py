"""The SQLite engine: every session is a process of its own that holds a copy of the database.

It does not need a container or a server. Databases are made once from their scripts and then copied
into each session's memory; large files that are only read are opened in place. Sessions leave no
files behind, and their processes end with this one.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TypeAlias

from pytest_intercode.core.task import Database, Limits
from pytest_intercode.databases.scan import split
from pytest_intercode.databases.sqlite.process import Lost, SqliteForks, SqliteProcess
from pytest_intercode.databases.sqlite.session import SqliteSession
from pytest_intercode.databases.sqlite.worker import COPY, FILE, IMAGE, SCRIPT
from pytest_intercode.errors import SandboxError, TaskError

__all__ = ["SqliteEngine"]

_MAX_COPIED_BYTES = 64 * 1024**2  # a larger file is not copied if it is only read
_BUILD_TIMEOUT = 120.0  # seconds to make a database, or to copy one
_BUILD_MEMORY = 2 * 1024**3  # bytes for the process that makes a database


_Source: TypeAlias = "tuple[int, bytes]"
"""The source of a session's database: ``IMAGE``, ``SCRIPT``, ``COPY`` or ``FILE``, and its data."""


class SqliteEngine:
    """Opens sessions; a process has one instance, which all episodes share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making: dict[Database, threading.Lock] = {}
        self._sources: dict[Database, _Source] = {}
        self._forks = SqliteForks()
        self._sessions: set[SqliteSession] = set()

    def session(self, database: Database, *, writes: bool, limits: Limits) -> SqliteSession:
        """Open a session on a copy of a database.

        Raises:
            TaskError: the database cannot be made.
            SandboxError: no process can be started.
        """
        source = self._source(database, writes)
        session = SqliteSession(
            lambda: self._start(source, writes=writes, memory=limits.memory),
            writes=writes,
            on_close=self._sessions.discard,
        )
        with self._lock:
            self._sessions.add(session)
        return session

    def _start(self, source: _Source, *, writes: bool, memory: int) -> SqliteProcess:
        """Return a process that has loaded a database."""
        process = SqliteProcess(self._forks)
        try:
            reply = process.open(*source, writes=writes, memory=memory, timeout=_BUILD_TIMEOUT)
        except Lost as lost:
            process.close()
            raise SandboxError(f"SQLite's process did not load the database: {lost}") from None
        if reply.error:
            process.close()
            raise TaskError(f"SQLite cannot load the database: {reply.error}")
        return process

    def close(self) -> None:
        """End every session."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        self._forks.close()

    # -- inside

    def _source(self, database: Database, writes: bool) -> _Source:
        with self._lock:
            making = self._making.setdefault(database, threading.Lock())
        with making:
            if database.file is not None:
                return _file(database.file, writes)
            if database not in self._sources:
                self._sources[database] = self._build(database.scripts)
            return self._sources[database]

    def _build(self, scripts: tuple[Path, ...]) -> _Source:
        """Make a database from its scripts, in a process with the same restrictions as agents'."""
        texts = {path: _text(path) for path in scripts}
        script = "\n;\n".join(texts.values()).encode()
        process = SqliteProcess(self._forks)
        try:
            reply = process.open(
                SCRIPT, script, writes=True, memory=_BUILD_MEMORY, timeout=_BUILD_TIMEOUT
            )
            if reply.error:
                raise TaskError(self._mistake(texts) or f"{scripts[0]}: {reply.error}")
            image = process.image(_BUILD_TIMEOUT)
            return (IMAGE, image) if image else (SCRIPT, script)
        except Lost as lost:
            raise TaskError(f"{scripts[0]}: SQLite did not come to its end: {lost}") from None
        finally:
            process.close()

    def _mistake(self, texts: dict[Path, str]) -> str:
        """Return the location and error of the statement that fails; empty if none does."""
        process = self._start((SCRIPT, b""), writes=True, memory=_BUILD_MEMORY)
        try:
            for path, text in texts.items():
                for statement in split(text, "sqlite"):
                    reply = process.execute(
                        statement.text, _BUILD_TIMEOUT, max_rows=0, max_bytes=0, stoppable=False
                    )
                    if reply.error:
                        return f"{path}:{statement.line}: {reply.error}"
        finally:
            process.close()
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read: {error}") from None


def _file(path: Path, writes: bool) -> _Source:
    try:
        with path.open("rb") as file:
            head = file.read(16)
        large = path.stat().st_size > _MAX_COPIED_BYTES and not writes
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error}") from None
    if head != b"SQLite format 3\0":
        raise TaskError(f"{path}: is not an SQLite database")
    return FILE if large else COPY, os.fsencode(path.absolute())
