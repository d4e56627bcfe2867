"""The process that holds one SQLite database in memory, and the one that it is forked from.

What an agent's SQL may do is limited here: by an authorizer, by limits of SQLite, and by limits of
the system, with which the process cannot open files, write files, or grow. It ends when its client
ends, even by SIGKILL, and has nothing on disk. If the system does not limit memory, as on macOS,
only SQLite's own limit remains, and the client watches the process's memory.

A worker communicates with :mod:`pytest_intercode.databases.sqlite.process` over its standard input
and output. A request is ``op, number, length`` and its payload; an answer is ``number, length`` and
its payload. The number of a request to interrupt comes on a separate pipe.

Starting Python takes ten times as long as forking a process that has imported all it needs. So
:func:`main` serves forks over a socket: ``F`` comes with the three pipes of a worker, and is
answered with its process id; ``R`` and an id reaps one that has ended; ``K`` and an id kills one,
reaps it and is answered with the id, for systems where a process cannot be killed by a descriptor.
It does not open databases or run SQL, has one thread, and ends with its client.
"""

from __future__ import annotations

import _thread
import gc
import os
import resource
import select
import signal
import socket
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUEST = struct.Struct("<cQQ")
ANSWER = struct.Struct("<QQ")
OPEN = struct.Struct("<BBQ")  # source, writes, memory
EXECUTE = struct.Struct("<dQQ")  # seconds, rows, bytes
RESULT = struct.Struct("<BqqIIQ")  # flags, affected, code, columns, rows, length of the error

IMAGE, SCRIPT, COPY, FILE = range(4)
HAS_RESULT, TRUNCATED, IN_TRANSACTION, FAILED = 1, 2, 4, 8

MAPPED_PAGES = Path("/proc/self/statm")
"""The size of a process's address space; on systems without this file, it is not limited."""

MAX_VALUE = 16 * 1024**2  # bytes of a text or a blob
MAX_STATEMENT = 1024**2  # bytes
_HEAP_SLACK = 16 * 1024**2  # bytes in addition to a session's memory, which SQLite itself needs
_pidfd_open: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
_CPU_SLACK = 30  # seconds after a statement's own limit, when the kernel kills the process

# LENGTH, SQL_LENGTH, ATTACHED, LIKE_PATTERN_LENGTH, TRIGGER_DEPTH, WORKER_THREADS: Python 3.10 does
# not have the names, nor the function.
_LIMITS = {0: MAX_VALUE, 1: MAX_STATEMENT, 7: 0, 8: 5000, 10: 100, 11: 0}


# SQLite's codes of what a statement may do; Python 3.10 does not have names for some of them.
_INSERT, _UPDATE, _DELETE, _READ, _PRAGMA, _FUNCTION = 18, 23, 9, 20, 19, 31
_ATTACH, _DETACH, _ALTER, _CREATE_VTABLE = 24, 25, 26, 29
# BEGIN, SAVEPOINT, SELECT, READ, RECURSIVE, and creating or dropping temporary objects.
_HARMLESS = {22, 32, 21, _READ, 33, 3, 4, 5, 6, 12, 13, 14, 15}
_OK, _DENY = 0, 1
_DENIALS = ("not authorized", "authorization denied", "prohibited")

_MODULES = {"fts4", "fts5", "rtree"}
_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_ASKING = {
    *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
    *("foreign_key_list", "foreign_key_check", "function_list", "collation_list", "module_list"),
    *("pragma_list", "compile_options", "integrity_check", "quick_check", "encoding"),
    *("page_count", "page_size", "freelist_count", "data_version", "schema_version"),
}
_UNSETTABLE = {"encoding", "page_size", "schema_version", "page_count", "data_version"}
_SETTING = {
    *("user_version", "application_id", "foreign_keys", "recursive_triggers"),
    *("defer_foreign_keys", "case_sensitive_like", "ignore_check_constraints"),
    *("legacy_alter_table", "reverse_unordered_selects"),
}


class Text(bytes):
    """The bytes of a text, which the client decodes; a blob is plain ``bytes``."""


class Rules:
    """What SQL may do; SQLite asks this while it prepares a statement.

    Everything that reaches beyond the session's own database is denied: other files, extensions,
    most PRAGMAs. A session that only reads may create temporary objects, but not change anything
    else.

    Attributes:
        writes: the session may change its database.
        on_disk: the database is a file of the host, whose path is not shown.
        denied: why the last statement was denied; empty if it was not.
    """

    def __init__(self) -> None:
        self.writes = False
        self.on_disk = False
        self.denied = ""

    def explain(self, message: str) -> str:
        """Return our reason instead of SQLite's bare "not authorized"."""
        return self.denied if any(word in message for word in _DENIALS) and self.denied else message

    def authorize(self, action: int, one: Any, two: Any, schema: Any, _: Any) -> int:
        """Decide whether SQLite may do an action (its manual, "Authorizer Action Codes")."""
        if action in _HARMLESS:
            return _OK
        feature = ""
        if action == _FUNCTION and str(two).lower() in _FUNCTIONS:
            feature = f"the function {two}()"
        elif action == _PRAGMA and not self._pragma(str(one).lower(), two):
            feature = f"this PRAGMA {one}"
        elif action in (_ATTACH, _DETACH):
            feature = "ATTACH, DETACH and VACUUM"
        elif action == _CREATE_VTABLE and str(two).lower() not in _MODULES:
            feature = f"the module {two}"
        if feature:
            self.denied = f"{feature} cannot be used here"
            return _DENY
        if (
            action in (_FUNCTION, _PRAGMA)
            or schema == "temp"
            or (action == _ALTER and one == "temp")
        ):
            return _OK
        if action in (_INSERT, _UPDATE, _DELETE) and one == "sqlite_master":
            return _OK  # SQLite itself does this; it refuses a statement that does
        if self.writes:
            return _OK
        self.denied = "the database is read-only: only queries and temporary tables are allowed"
        return _DENY

    def _pragma(self, name: str, value: Any) -> bool:
        if name == "database_list":
            return not self.on_disk  # it would show a path of the host
        if name in ("user_version", "application_id") and value is not None:
            return self.writes
        if name in _SETTING:
            return True
        return name in _ASKING and (value is None or name not in _UNSETTABLE)


class Worker:
    """One connection."""

    def __init__(self) -> None:
        self.running = 0  # the number of the request that is being answered
        self.rules = Rules()
        self.connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=0
        )

    # -- requests

    def open(self, payload: bytes) -> bytes:
        """Load the database; after that, the process cannot reach anything else."""
        source, writes, memory = OPEN.unpack_from(payload)
        self.rules.writes = bool(writes) or source == SCRIPT
        data = payload[OPEN.size :]
        if source in (COPY, FILE):
            self._open_file(os.fsdecode(data), as_copy=source == COPY)
        elif source == IMAGE:
            self._load(data)
        connection = self.connection
        connection.text_factory = Text
        connection.execute("PRAGMA temp_store = MEMORY")
        # Read the schema and the seed of random() now, because no file can be opened later.
        connection.execute("SELECT count(*), random() FROM sqlite_master").fetchall()
        self._limit_heap(memory)
        connection.set_authorizer(self.rules.authorize)
        del payload
        self._limit(memory)
        if source == SCRIPT:
            try:
                connection.executescript(data.decode())
            except (sqlite3.Error, MemoryError) as error:
                return self._failure(error)
            if connection.in_transaction:
                connection.execute("COMMIT")
            self.rules.writes = bool(writes)
        if hasattr(connection, "setlimit"):
            for name, value in _LIMITS.items():
                connection.setlimit(name, value)
        return self._answer()

    def _open_file(self, path: str, *, as_copy: bool) -> None:
        if as_copy and hasattr(self.connection, "deserialize"):
            self._load(Path(path).read_bytes())
            return
        quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        uri = f"file:{quoted}?mode=ro&immutable=1"
        opened = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        if as_copy:
            opened.backup(self.connection)
            opened.close()
        else:
            self.rules.on_disk = True
            self.connection = opened

    def _load(self, image: bytes) -> None:
        if image[18:20] == b"\2\2":  # SQLite would expect a log next to the file
            image = image[:18] + b"\1\1" + image[20:]
        if image:
            self.connection.deserialize(image)  # type: ignore[attr-defined]  # of Python 3.11

    def _limit_heap(self, memory: int) -> None:
        """Limit the bytes that SQLite may allocate in addition to what it has.

        Once set, this limit can only be lowered, and the authorizer denies the PRAGMA anyway.
        SQLite before 3.31 does not have it, and a build that does not count memory ignores it. On
        Linux it is the second limit: that of the address space is reached first. That one includes
        Python's memory, and the space of the copies of an image in the request can be used again.
        """
        loaded = 0
        if not self.rules.on_disk:
            (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
            (page_size,) = self.connection.execute("PRAGMA page_size").fetchone()
            loaded = int(pages) * int(page_size)
        limit = 4 * loaded + memory + _HEAP_SLACK
        self.connection.execute(f"PRAGMA hard_heap_limit = {limit}").fetchall()

    def _limit(self, memory: int) -> None:
        """Permanently give up what the process no longer needs."""
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        limits = [
            (resource.RLIMIT_NOFILE, free),  # lower numbers are all in use: nothing can be opened
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
        ]
        if (present := _count_mapped_bytes()) is not None:
            limits.append((resource.RLIMIT_AS, present + memory))
        for resource_kind, limit in limits:
            resource.setrlimit(resource_kind, (limit, limit))

    def batch(self, payload: bytes) -> bytes:
        """Run several statements, even if some fail; they share the limits of rows and bytes."""
        seconds, rows, size = EXECUTE.unpack_from(payload)
        blocks = []
        for statement in payload[EXECUTE.size :].split(b"\0"):
            answer = self.execute(EXECUTE.pack(seconds, rows, size) + statement)
            rows = max(0, rows - RESULT.unpack_from(answer)[4])
            size = max(0, size - len(answer))
            blocks.append(_block(answer))
        return b"".join(blocks)

    def execute(self, payload: bytes) -> bytes:
        """Run one statement and fetch its rows, up to the limits."""
        seconds, max_rows, max_bytes = EXECUTE.unpack_from(payload)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(usage.ru_utime + usage.ru_stime + seconds) + _CPU_SLACK
        # Only the soft limit, because the next statement raises it again.
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        self.rules.denied = ""
        try:
            cursor = self.connection.execute(payload[EXECUTE.size :].decode())
            rows, truncated = _fetch(cursor, max_rows, max_bytes)
            names = [str(column[0]) for column in cursor.description or ()]
            affected = cursor.rowcount
            cursor.close()
            return self._answer(names, rows, affected, truncated)
        except (sqlite3.Error, sqlite3.Warning, MemoryError, ValueError, OverflowError) as error:
            return self._failure(error)

    def image(self, _: bytes) -> bytes:
        """Return the database as the bytes of its file; empty if Python cannot do that (3.10)."""
        return self.connection.serialize() if hasattr(self.connection, "serialize") else b""

    # -- answers

    def _answer(
        self,
        names: list[str] | None = None,
        rows: list[tuple[Any, ...]] | None = None,
        affected: int = 0,
        truncated: bool = False,
    ) -> bytes:
        names, rows = names or [], rows or []
        flags = HAS_RESULT * bool(names) | TRUNCATED * truncated
        flags |= IN_TRANSACTION * self.connection.in_transaction
        blocks = [RESULT.pack(flags, max(affected, 0), 0, len(names), len(rows), 0)]
        blocks += [_block(name.encode("utf-8", "replace")) for name in names]
        for column in zip(*rows, strict=True):
            _encode(column, blocks)
        return b"".join(blocks)

    def _failure(self, error: Exception) -> bytes:
        message = str(error) or type(error).__name__
        message = "out of memory" if isinstance(error, MemoryError) else self.rules.explain(message)
        flags = FAILED | IN_TRANSACTION * self.connection.in_transaction
        code = getattr(error, "sqlite_errorcode", 0)
        text = message.encode("utf-8", "replace")
        return RESULT.pack(flags, 0, code, 0, 0, len(text)) + text


_SIZED = (bytes, Text)


def _fetch(
    cursor: sqlite3.Cursor, max_rows: int, max_bytes: int
) -> tuple[list[tuple[Any, ...]], bool]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        for cell in row:
            size += len(cell) if cell.__class__ in _SIZED else 8
        if len(rows) == max_rows or size > max_bytes:
            return rows, True
        rows.append(row)
    return rows, False


_TAGS = {type(None): 0, int: 1, float: 2, Text: 3, bytes: 4}


def _block(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _encode(column: tuple[Any, ...], blocks: list[bytes]) -> None:
    """Append a column: the kind of each cell, then the cells of each kind."""
    # By columns, so that the client unpacks many cells of one kind with one call.
    blocks.append(bytes([_TAGS[cell.__class__] for cell in column]))
    for kind, code in ((int, "q"), (float, "d")):
        numbers = [cell for cell in column if cell.__class__ is kind]
        blocks.append(struct.pack(f"<{len(numbers)}{code}", *numbers))
    for sized in (Text, bytes):
        texts = [cell for cell in column if cell.__class__ is sized]
        blocks.append(struct.pack(f"<{len(texts)}Q", *map(len, texts)))
        blocks.extend(texts)


# -- the process


def _count_mapped_bytes() -> int | None:
    """Return the size of the address space; None if it is neither known nor limited (macOS)."""
    try:
        return int(MAPPED_PAGES.read_bytes().split()[0]) * resource.getpagesize()
    except FileNotFoundError:
        return None


def _read(size: int) -> bytes:
    """Read exactly ``size`` bytes; exit when the client has ended."""
    parts = []
    while size:
        part = os.read(0, min(size, 1024**2))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(pipe: int, *parts: bytes) -> None:
    """Write all parts completely."""
    for part in parts:
        view = memoryview(part)
        while view:
            view = view[os.write(pipe, view) :]


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None if unsupported.

    macOS and Linux before 5.3 do not support it.
    """
    try:
        return None if _pidfd_open is None else _pidfd_open(pid)
    except OSError:
        return None


def _wait(pipe: int, gone: int | None) -> list[int]:
    """Return which of both are readable; without ``gone``, possibly none after a second."""
    waiting = select.poll()
    for number in (pipe, gone):
        if number is not None:
            waiting.register(number, select.POLLIN)
    return [number for number, _ in waiting.poll(1000 if gone is None else None)]


def _watch(worker: Worker, control: int, gone: int | None, parent: int) -> None:
    """Interrupt requests on demand, and end with the client, even while the main thread is busy.

    The control pipe ends with the client, unless a child that the client forked holds it, too. So
    the client itself is watched as well, or else the parent, which ends with the client.
    """
    try:
        while True:
            ready = _wait(control, gone)
            if gone in ready or (gone is None and os.getppid() != parent):
                return
            if control not in ready:
                continue
            message = os.read(control, 8)
            if len(message) < 8:
                return
            while worker.running == int.from_bytes(message, "little"):
                worker.connection.interrupt()  # has no effect between two steps, so repeat it
                time.sleep(0.005)
    finally:
        os._exit(0)


def serve(control: int, gone: int | None, parent: int) -> None:
    """Answer requests until the client ends; ``gone`` becomes readable when it does.

    ``parent`` is the process that forked this one. It is passed, because it may have ended by now.
    """
    worker = Worker()
    _thread.start_new_thread(_watch, (worker, control, gone, parent))
    handlers = {
        b"O": worker.open,
        b"X": worker.execute,
        b"B": worker.batch,
        b"I": worker.image,
    }
    while True:
        op, number, length = REQUEST.unpack(_read(REQUEST.size))
        payload = _read(length)
        worker.running = number
        try:
            answer = handlers[op](payload)
        finally:
            worker.running = 0
        del payload
        write_all(1, ANSWER.pack(number, len(answer)), answer)


def main() -> None:
    """Fork a process for each session until the client ends."""
    client = int(sys.argv[2])
    channel = socket.socket(fileno=int(sys.argv[1]))
    gone = open_pidfd(client)
    parent = os.getpid()
    # So that garbage collection in a fork does not write to pages shared with this process.
    gc.freeze()
    while os.getppid() == client:
        if channel.fileno() not in _wait(channel.fileno(), gone):
            continue
        message, pipes, _, _ = socket.recv_fds(channel, 9, 3)
        if message[:1] == b"F" and len(pipes) == 3:
            pid = os.fork()
            if pid == 0:
                _become_worker(channel, pipes, gone, parent)
            for number in pipes:
                os.close(number)
            channel.sendall(pid.to_bytes(8, "little"))
        elif message[:1] in (b"R", b"K"):
            _reap(int.from_bytes(message[1:], "little"), kill=message[:1] == b"K")
            if message[:1] == b"K":
                channel.sendall(message[1:])
        else:
            return


def _reap(pid: int, *, kill: bool) -> None:
    """Wait for the end of a worker, which keeps its id until then, so no other one is killed."""
    try:
        if kill and os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        elif not kill:
            os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # it was already reaped, or another forker has made it


def _become_worker(channel: socket.socket, pipes: list[int], gone: int | None, parent: int) -> None:
    try:
        channel.close()
        # The forker has 0 to 2 open, so the three numbers are above the targets.
        for target, number in enumerate(pipes):
            os.dup2(number, target)
        for number in pipes:
            os.close(number)
        serve(control=2, gone=gone, parent=parent)
    finally:
        os._exit(1)
