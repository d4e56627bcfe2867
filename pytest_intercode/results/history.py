"""Kept runs: what the history stores about each run, read from results files and kept ones.

A kept run is a small file with a line of JSON for each of its cells. So a folder of them can be a
branch of a repository: two jobs that each add a run never change the same file.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.cells import Cell, group_by_cell
from pytest_intercode.results.files import iterate_records, no_episodes
from pytest_intercode.results.format import plain_text
from pytest_intercode.results.tries import TaskKey, by_task, counted_tries
from pytest_intercode.system.digest import file_digest
from pytest_intercode.system.files import open_unpacked, read_bounded, write_file

__all__ = ["KeptCell", "TaskTally", "keep", "read_history"]

_BEGINNING = b'{"history_version":'  # of each line of a kept run
_MAX_SIZE = 256 * 1024**2  # bytes of a kept run; 10,000 tasks take one million
_DIGEST_LENGTH = 16  # hexadecimal digits
_SUFFIXES = (".jsonl", ".jsonl.gz")  # of the files in a folder that are read
_EXPORT_SUFFIXES = (".chat.jsonl", ".chat.jsonl.gz")  # of files that `export` writes next to a run

_Count = Annotated[int, Field(ge=0)]
_Text = Annotated[str, AfterValidator(plain_text)]  # even the name of a file that is not UTF-8


class TaskTally(NamedTuple):
    """What is kept about a task: its graded tries, added up.

    Attributes:
        env: the environment.
        suite: the suite, as in :class:`~pytest_intercode.results.tries.TaskKey`.
        task: the id, as there.
        solved: how many tries were solved.
        graded: the number of tries, at least one.
        turns: how many turns they took together.
        cost: what they cost together; None if the price of one is not known.
    """

    env: _Text
    suite: _Text
    task: _Text
    solved: _Count
    graded: Annotated[int, Field(ge=1)]
    turns: _Count
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None

    @property
    def key(self) -> TaskKey:
        """The key of the task, by which runs are compared."""
        return TaskKey(self.env, self.suite, self.task)

    @property
    def tries(self) -> list[bool]:
        """Whether each graded try was solved; the order has no meaning."""
        return [True] * self.solved + [False] * (self.graded - self.solved)


class KeptCell(BaseModel):
    """One cell of a run: a line of a kept run.

    Attributes:
        history_version: the version of the line's format.
        run: the run, identified by the digest of its results file.
        name: the name of the run: the user's, or that of its file.
        date: when its first episode began; if records do not have it, when the file was written.
        commit: the commit that was tested, as given by the user.
        agent: the agent.
        treatment: the treatment; empty if there was no choice.
        arguments: the agent's arguments, without keys and passwords.
        profile: the profile of rewards; several are separated by commas.
        ungraded: tries that failed because of the task or the infrastructure.
        tasks: the tasks with a graded try.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    history_version: Literal[1] = 1
    run: Annotated[str, Field(pattern=rf"^[0-9a-f]{{{_DIGEST_LENGTH}}}$")]
    name: _Text
    date: AwareDatetime
    commit: str = ""
    agent: _Text = ""
    treatment: _Text = ""
    arguments: dict[_Text, str] = {}
    profile: _Text = ""
    ungraded: _Count = 0
    tasks: tuple[TaskTally, ...]

    @model_validator(mode="after")
    def _check_tasks(self) -> KeptCell:
        for tally in self.tasks:
            if tally.solved > tally.graded:
                raise ValueError(f"task {tally.task}: {tally.solved} of {tally.graded} tries")
        if len({tally.key for tally in self.tasks}) < len(self.tasks):
            raise ValueError("a task is in it twice")
        return self

    @property
    def cell(self) -> Cell:
        """The agent with its arguments, and the treatment."""
        return Cell(self.agent, self.treatment, tuple(sorted(self.arguments.items())))

    @property
    def solved(self) -> Mapping[TaskKey, list[bool]]:
        """For each task, whether each of its graded tries was solved."""
        return {tally.key: tally.tries for tally in self.tasks}


# -- reading


def read_history(
    paths: Iterable[Path], warn: Callable[[str], None] | None = None
) -> list[KeptCell]:
    """Read runs, the oldest first; each run is read once, even if it is there several times.

    Args:
        paths: results files, kept runs, and folders of both: in a folder, the files whose names end
            with ``.jsonl`` or ``.jsonl.gz``, except for exports.
        warn: called with one line if the last line of a results file is truncated; that line is
            then left out. Without it, such a line is an error.

    Raises:
        ConfigurationError: a file cannot be read, is neither of the two, or has no episode; a
            folder has no such file.
    """
    runs: dict[str, list[KeptCell]] = {}
    for path in paths:
        for file in _files_of(path):
            cells = _read(file, warn)
            run = cells[0].run
            # If a run is there as both kinds of files, only the kept one has the commit.
            if run not in runs or not any(cell.commit for cell in runs[run]):
                runs[run] = cells
    ordered = sorted(runs.values(), key=lambda cells: (cells[0].date, cells[0].name))
    return [cell for cells in ordered for cell in cells]


def _files_of(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    try:
        files = sorted(
            file
            for file in path.iterdir()
            if file.name.endswith(_SUFFIXES) and not file.name.endswith(_EXPORT_SUFFIXES)
        )
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    if not files:
        raise ConfigurationError(
            f"{path}: contains no runs: no file in this folder ends with {' or '.join(_SUFFIXES)}"
        )
    return files


def _read(path: Path, warn: Callable[[str], None] | None) -> list[KeptCell]:
    try:
        with open_unpacked(path) as file:
            is_kept = file.read(len(_BEGINNING)) == _BEGINNING
    except (OSError, EOFError, zlib.error):
        is_kept = False  # reading it as results reports why it cannot be read
    return _read_kept(path) if is_kept else _summarise(path, warn)


def _read_kept(path: Path) -> list[KeptCell]:
    """Read a kept run, which is always complete."""
    try:
        data = read_bounded(path, _MAX_SIZE)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error  # gzip's errors do not have it
        raise ConfigurationError(f"{path}: cannot be read: {reason}") from None
    if data is None:
        raise ConfigurationError(f"{path}: is larger than {_MAX_SIZE // 1024**2} MiB")
    cells = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            cells.append(KeptCell.model_validate_json(line))
        except ValidationError as error:
            raise ConfigurationError(
                f"{path}:{number}: not a kept run: {_problem(error)}"
            ) from None
    if len({cell.run for cell in cells}) > 1:
        raise ConfigurationError(f"{path}: not a kept run: its lines belong to several runs")
    return cells


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    location = ".".join(map(str, first["loc"]))
    if location == "history_version":
        return "it was written by a newer version; this one reads history_version 1"
    return f"{location}: {first['msg']}" if location else first["msg"]


def _summarise(path: Path, warn: Callable[[str], None] | None) -> list[KeptCell]:
    """Return the kept cells of a results file, without loading all trajectories together."""
    light = (record.without_trajectory() for record in iterate_records(path, warn))
    tries = counted_tries(light)
    if not tries:
        raise no_episodes(path, ", so there is no run in it")
    try:
        with open_unpacked(path) as file:  # so that packing the file does not make another run
            digest = file_digest(file)[:_DIGEST_LENGTH]
        write_time = path.stat().st_mtime
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    names = {record.run_name for record in tries}
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    try:
        return [
            KeptCell(
                run=digest,
                name=(names.pop() if len(names) == 1 else "") or stem,
                date=_date(tries, write_time),
                agent=cell.agent,
                treatment=cell.treatment,
                arguments=dict(cell.arguments),
                profile=", ".join(sorted({record.profile for record in records} - {""})),
                ungraded=sum(not record.graded for record in records),
                tasks=_tallies(records),
            )
            for cell, records in group_by_cell(tries).items()
        ]
    except ValidationError as error:  # such as a cost below 0
        raise ConfigurationError(f"{path}: not a run that can be kept: {_problem(error)}") from None


def _date(tries: Iterable[EpisodeRecord], write_time: float) -> datetime:
    """Return when the first episode began, or else when the file was written, to the second."""
    begins = (begin for record in tries for begin, _ in record.phases.values())
    try:
        return datetime.fromtimestamp(int(min(begins, default=write_time)), timezone.utc)
    except (OverflowError, ValueError):  # a record may have any number
        return datetime.fromtimestamp(int(write_time), timezone.utc)


def _tallies(records: Iterable[EpisodeRecord]) -> tuple[TaskTally, ...]:
    graded = by_task(record for record in records if record.graded)
    tallies = []
    for key, tries in graded.items():
        costs = [record.usage.cost for record in tries if record.usage.cost is not None]
        tallies.append(
            TaskTally(
                *key,
                solved=sum(record.succeeded for record in tries),
                graded=len(tries),
                turns=sum(len(record.turns) for record in tries),
                cost=sum(costs) if len(costs) == len(tries) else None,
            )
        )
    return tuple(tallies)


# -- keeping


def keep(folder: Path, cells: Iterable[KeptCell], commit: str = "") -> list[Path]:
    """Add runs to a folder, each as a separate file; existing runs are not added again.

    Args:
        folder: the folder; it is made if it is missing.
        cells: the cells of the runs.
        commit: the commit of the runs, for those that do not name one.

    Returns:
        The files that were written.

    Raises:
        ConfigurationError: a file cannot be written.
    """
    runs: dict[str, list[KeptCell]] = defaultdict(list)
    for cell in cells:
        runs[cell.run].append(cell)
    files = []
    for run, cells_of_run in runs.items():
        if any(folder.glob(f"*-{run}.jsonl")):
            continue
        path = folder / f"{cells_of_run[0].date:%Y%m%dT%H%M%SZ}-{run}.jsonl"
        lines = [
            cell.model_copy(update={"commit": cell.commit or plain_text(commit)}).model_dump_json()
            for cell in cells_of_run
        ]
        write_file(path, "".join(f"{line}\n" for line in lines), option="--keep")
        files.append(path)
    return files
