"""Results files: reads ours and InterCode's, and writes ours as episodes end.

A file is ours (a line of JSON for each episode) or one that InterCode published, plain or packed
with gzip. Whatever its shape, episodes are read as :class:`EpisodeRecord`.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import os
import re
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.format import from_row, to_line
from pytest_intercode.system.files import (
    RESULTS_BEGINNING,
    holds_results,
    is_packed,
    locked,
    open_unpacked,
    read_bounded,
    replace_and_keep,
)
from pytest_intercode.system.rows import json_problem

__all__ = [
    *("ResultsFile", "iterate_records", "no_episodes", "read_records", "read_results", "to_text"),
]

_BEGINNING = RESULTS_BEGINNING.decode()
_MAX_SIZE = 2 * 1024**3  # bytes, unpacked
_Decoder = codecs.getincrementaldecoder("utf-8")
_NEEDED = "a results file is needed, as --intercode-results writes it, or InterCode's"
_FENCED = re.compile(r"```(?:bash|sh|shell)?\s+(.*?)\s*(?:```)?", re.DOTALL | re.IGNORECASE)


def read_records(path: Path, warn: Callable[[str], None] | None = None) -> list[EpisodeRecord]:
    """Read a results file of any version, or one that InterCode published.

    Args:
        path: the file; with gzip if its name ends with ``.gz``.
        warn: called with one line if the last line is truncated, because its run was killed or is
            writing it; that line is then left out. Without it, such a line is an error.

    Raises:
        ConfigurationError: it cannot be read, or is not a results file.
    """
    return list(iterate_records(path, warn))


def no_episodes(source: object, consequence: str = "") -> ConfigurationError:
    """Return the error for results without an episode; ``consequence`` ends its line."""
    return ConfigurationError(f"{source}: contains no recorded episodes{consequence}")


def iterate_records(
    path: Path, warn: Callable[[str], None] | None = None
) -> Iterator[EpisodeRecord]:
    """Read a results file record by record; one of pytest-intercode is never in memory as a whole.

    Args:
        path: the file, as for :func:`read_records`.
        warn: as for :func:`read_records`.

    Raises:
        ConfigurationError: it cannot be read, or is not a results file; raised during iteration.
    """
    for place, row in _rows(path, warn):
        yield from_row(row, place)


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file with their ends, reading each when it is asked for."""
    size = 0
    with contextlib.ExitStack() as stack:
        with _reading(path):
            file = stack.enter_context(open_unpacked(path))
        while True:
            with _reading(path):
                line = file.readline(_MAX_SIZE - size + 1)
                size += len(line)
                if size > _MAX_SIZE:
                    raise _too_large(path)
                # A truncated last line may end in the middle of a character.
                text = _Decoder().decode(line, final=line.endswith(b"\n"))
            if not line:
                return
            yield text


def read_results(path: Path, warn: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Read a results file as the dictionaries that it holds; see :func:`read_records`.

    Returns:
        A row for each episode, with the keys of ``docs/episode-record.schema.json``. Episodes of
        InterCode that have another shape (Plan & Solve, the human's) are converted to this one.

    Raises:
        ConfigurationError: it cannot be read, or is not a results file.
    """
    rows = []
    for place, row in _rows(path, warn):
        from_row(row, place)
        rows.append(row)
    return rows


def to_text(records: list[EpisodeRecord]) -> str:
    """Return the content of a results file."""
    return "".join(f"{to_line(record)}\n" for record in records)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Report in one line why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such results file") from None
    except IsADirectoryError:
        raise ConfigurationError(
            f"{path}: cannot be read: it is a folder, a file is needed"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text; {_NEEDED}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None


def _rows(path: Path, warn: Callable[[str], None] | None) -> Iterator[tuple[str, Any]]:
    """Yield the place (``file:line`` or ``file, row N``) and the object of each episode.

    A file of ours is read line by line; InterCode's files are one JSON value.
    """
    if holds_results(path):
        yield from _parse_lines(path, _lines(path), warn)
        return
    with _reading(path):
        data = read_bounded(path, _MAX_SIZE)
        if data is None:
            raise _too_large(path)
        text = _Decoder().decode(data, final=warn is None)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        # It looks like a line of our own format, not like InterCode's indented files.
        if isinstance(error, json.JSONDecodeError) or text.lstrip().startswith('{"'):
            yield from _parse_lines(path, io.StringIO(text, newline="\n"), warn)
            return
        raise ConfigurationError(f"{path}: not JSON: {json_problem(error)}") from None
    for index, episode in enumerate(_episodes(whole)):
        place = f"{path}:1" if episode is whole else f"{path}, row {index}"
        yield place, _with_turn_history(episode)


def _too_large(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path}: is too large: at most {_MAX_SIZE // 1024**3} GiB are read")


def _parse_lines(
    path: Path, lines: Iterable[str], warn: Callable[[str], None] | None
) -> Iterator[tuple[str, Any]]:
    """Yield place and object of each line; call ``warn``, if given, for a truncated last one."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line.removesuffix("\n"))
        except (ValueError, RecursionError) as error:
            # Each line is written with its end, so a last line without it is truncated.
            truncated = not line.endswith("\n")
            is_results = number > 1 or line.startswith(_BEGINNING)
            if truncated and is_results and warn is not None:
                warn(
                    f"{place}: the last line is truncated: its run was killed, or is "
                    "writing it; it is left out"
                )
                return
            hint = ""
            if truncated and number > 1:
                hint = " (the last line is truncated: its run was killed; delete it)"
            elif not is_results:
                hint = f"; {_NEEDED}"
            raise ConfigurationError(f"{place}: not JSON: {json_problem(error)}{hint}") from None
        yield place, _with_turn_history(row)


# -- the shapes of InterCode's files


def _episodes(whole: Any) -> list[Any]:
    """Return the episodes of a file that is one JSON value."""
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, dict) or "turn_history" in whole or "trajectory" in whole:
        return [whole]
    meta, logs = whole.get("meta"), whole.get("logs")
    if isinstance(meta, dict) and isinstance(logs, (dict, list)):
        episodes = logs.values() if isinstance(logs, dict) else logs
        return [_plan_and_solve(episode, meta) for episode in episodes]
    if not all(isinstance(episode, dict) for episode in whole.values()):
        return [whole]  # one object, which is not an episode
    return list(whole.values())


def _plan_and_solve(episode: Any, meta: dict[str, Any]) -> Any:
    """Return an episode of Plan & Solve with actions without fences, and its file from the head."""
    history = episode.get("turn_history") if isinstance(episode, dict) else None
    actions = history.get("actions") if isinstance(history, dict) else None
    if not isinstance(actions, list) or not isinstance(history, dict):
        return episode
    head = {"environment": meta.get("env"), "dataset": meta.get("data_path")}
    return {
        **{name: value for name, value in head.items() if isinstance(value, str)},
        **episode,
        "turn_history": {**history, "actions": [_unfenced(action) for action in actions]},
    }


def _unfenced(action: Any) -> Any:
    fenced = _FENCED.fullmatch(action.strip()) if isinstance(action, str) else None
    return fenced[1] if fenced else action


def _with_turn_history(row: Any) -> Any:
    """Return an episode in the shape of most files; the human's has a list of turns instead."""
    turns = row.get("trajectory") if isinstance(row, dict) else None
    if not isinstance(turns, list) or "turn_history" in row:
        return row
    moved = ("trajectory", "query_idx", "reward")
    steps = [turn if isinstance(turn, dict) else {} for turn in turns]
    return {
        "task_id": row.get("query_idx"),
        "turn_history": {
            "actions": [step.get("action") for step in steps],
            "observations": [step.get("observation") for step in steps],
        },
        "summary": {"max_reward": row.get("reward"), "turns_taken": len(turns)},
        **{name: value for name, value in row.items() if name not in moved},
    }


# -- writing


class ResultsFile:
    """Appends records as episodes end, so that a killed run loses only the running episodes.

    While the file is open, it is locked, by a lock that the system releases when the process ends,
    and it always ends with a complete row. Nothing raises after it has been opened: rows that
    cannot be written are kept, and written as soon as possible. An interrupt may come at any
    moment: a row is either in the file or waiting.

    Existing content is never lost. A file with content is left unchanged until there is a record;
    then it gets a numbered name, and a new file with that record replaces it.

    Args:
        path: the file.
        resume: append to the existing rows; only a truncated last line is removed.
        option: the option that named it, for messages.

    Attributes:
        path: the file; another one next to it, if the file was replaced while it was open.
        notes: lines for people: the last line was truncated, the previous file has another name, or
            the file was removed while it was open.
        untouched: whether the file is still that of an earlier run, without a new record.
        problem: why the last record could not be written; empty if it was.
        lost: whether the file was removed and its rows could not be written again so far.

    Raises:
        ConfigurationError: the file cannot be written, another run writes to it, or the file to
            resume is not a results file.
    """

    def __init__(
        self, path: Path, *, resume: bool = False, option: str = "--intercode-results"
    ) -> None:
        if is_packed(path):
            raise ConfigurationError(
                f"{option}={path}: rows are appended to this file, so it cannot be compressed; "
                "name one without .gz, and compress it after the run"
            )
        self.path = path
        self._option = option
        self._given = 0
        self.notes: list[str] = []
        self.problem = ""
        self.lost = False
        self.untouched = False
        self._waiting: list[bytes] = []
        try:
            self._file = self._open(path, os.O_CREAT)
            # Something else, such as a pipe, has no rows to keep and no position to go back to.
            self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)
        except OSError as error:
            raise ConfigurationError(
                f"{option}={path}: cannot be written: {error.strerror}"
            ) from None
        try:
            if resume and self._regular:
                self.notes += self._repair()
            elif self._regular and os.fstat(self._file).st_size:
                self._check_folder()
                self.untouched = True
        except BaseException:
            os.close(self._file)
            raise

    @property
    def written(self) -> int:
        """How many records have been written."""
        return self._given - len(self._waiting)

    @property
    def unwritten(self) -> int:
        """How many records wait to be written."""
        return len(self._waiting)

    def write(self, line: str) -> None:
        """Append a line that :func:`to_line` made; ``problem`` tells if it could not be written."""
        self._waiting.append(f"{line}\n".encode())
        self._given += 1
        self.retry()

    def retry(self) -> None:
        """Write the waiting rows; afterwards ``problem`` says why some are not written, if any."""
        try:
            if self.untouched and self._waiting:
                self._begin()
            self.lost = True
            self._follow()
            self.lost = False
            while self._waiting:
                self._append()
            self.problem = ""
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Close the file, which also unlocks it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self, path: Path, flags: int) -> int:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        access = os.O_RDWR if path.is_file() or not path.exists() else os.O_WRONLY
        file = os.open(path, access | os.O_APPEND | flags, 0o666)
        try:
            # Before it was locked, another run may have replaced it by its own file.
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode) and not (
                locked(file) and os.path.samestat(path.stat(), status)
            ):
                raise ConfigurationError(
                    f"{self._option}={path}: another run is writing to this file; name another "
                    "one, or wait until that run is over"
                )
        except BaseException:
            os.close(file)
            raise
        return file

    def _repair(self) -> list[str]:
        """Remove a truncated last line, or end a complete last one; return the warnings."""
        warnings: list[str] = []
        for _ in iterate_records(self.path, warnings.append):
            pass  # this raises if a line is not a row
        try:
            size = os.fstat(self._file).st_size
            if warnings:
                os.ftruncate(self._file, _end_of_lines(self._file, size))
            elif size and _read_at(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")
        except OSError as error:
            raise ConfigurationError(
                f"{self._option}={self.path}: cannot be written: {error.strerror}"
            ) from None
        return warnings

    def _check_folder(self) -> None:
        """Check that another file can be made next to the existing one."""
        folder = Path(os.path.realpath(self.path)).parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigurationError(
                f"{self._option}={self.path}: is not empty, and is kept, but no file can be made "
                "next to it, as its folder is not writable; name another file"
            )

    def _begin(self) -> None:
        """Replace the existing file, which is kept, by a new one with the first row."""
        path = Path(os.path.realpath(self.path))
        new = path.with_name(f".intercode-{secrets.token_hex(8)}")
        file = self._open(new, os.O_CREAT | os.O_EXCL)
        try:
            os.chmod(file, os.fstat(self._file).st_mode & 0o7777)  # noqa: PTH101  a descriptor
            _write_all(file, self._waiting[0])
            self.notes += replace_and_keep(new, path)
        except BaseException:
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        previous, self._file = self._file, file
        self.untouched = False
        del self._waiting[0]
        os.close(previous)

    def _append(self) -> None:
        """Write the first waiting row completely, or leave the file as it was."""
        row, end = self._waiting[0], os.fstat(self._file).st_size
        try:
            _write_all(self._file, row)
            del self._waiting[0]
        except BaseException:
            if self._regular and self._waiting and self._waiting[0] is row:
                os.ftruncate(self._file, end)
            raise

    def _follow(self) -> None:
        """Make sure that the rows are in a file with a name, as the user may have removed it."""
        if not self._regular:
            return
        status = os.fstat(self._file)
        try:
            if os.path.samestat(self.path.stat(), status):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return  # its folder may no longer be accessible, but writing may still work
        moved = status.st_nlink > 0
        path = original = self.path
        if path.exists():
            path = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            file = self._open(path, os.O_CREAT | os.O_EXCL)
        except ConfigurationError as error:
            raise OSError(errno.EBUSY, str(error)) from None
        try:
            _copy(self._file, file)
        except BaseException:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        previous, self.path, self._file = self._file, path, file
        os.close(previous)
        happened = "moved" if moved else "removed"
        self.notes.append(
            f"{original}: was {happened if path == original else 'replaced'} while the run wrote "
            f"to it; all of its rows are in {path}"
        )


def _copy(source: int, target: int) -> None:
    offset = 0
    while piece := _read_at(source, 1024 * 1024, offset):
        offset += len(piece)
        _write_all(target, piece)


def _read_at(file: int, size: int, offset: int) -> bytes:
    """Read at an offset of a file that is open for appending, which ignores the position."""
    os.lseek(file, offset, os.SEEK_SET)
    return os.read(file, size)


def _write_all(file: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(file, remaining) :]


def _end_of_lines(file: int, size: int) -> int:
    """Return the position after the last line end of a file; 0 if it has none."""
    while size:
        begin = max(0, size - 1024 * 1024)
        newline = _read_at(file, size - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        size = begin
    return 0
