"""Merges several results files: decides which record of a try counts. Pure: records in and out.

The records of all files are kept, in order. If a try is in one file more than once, because it was
run again, the last record counts. Tries of one task by two agents, or with two treatments, are two
tries. If a try is in several files:

- identical records are kept once;
- a record that was not graded is superseded by one that was;
- two graded records are two episodes, one of which would be lost: this is refused, unless the
  caller says that the last file counts.

If records name their shards, the files have to be all shards of one run.

Superseded records are marked ``superseded`` and come before the record that counts.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.cells import cell_of
from pytest_intercode.results.format import shown_arguments
from pytest_intercode.results.tries import TryKey, counted_tries, key_of, try_key_of

__all__ = ["Merged", "check_shards", "merge"]

_Files: TypeAlias = "Sequence[tuple[Path, Sequence[EpisodeRecord]]]"


class Merged(NamedTuple):
    """The merged records of several files.

    Attributes:
        records: the records.
        tries: the records that count.
        record_counts: how many records came from each file.
        duplicates: how many further records of each file are identical in a later one.
        superseded: how many records are superseded by another file's.
    """

    records: list[EpisodeRecord]
    tries: list[EpisodeRecord]
    record_counts: list[int]
    duplicates: list[int]
    superseded: int


class _Placed(NamedTuple):
    """The record of a try that counts in one file."""

    file: int
    record: EpisodeRecord


def merge(files: _Files, *, last_counts: bool = False) -> Merged:
    """Return the merged records of several files.

    Args:
        files: paths with their records.
        last_counts: if several files graded a try, take the last one.

    Raises:
        ConfigurationError: files have different episodes of the same try.
    """
    tries: dict[TryKey, list[_Placed]] = defaultdict(list)
    for file, (_, records) in enumerate(files):
        for record in counted_tries(records):
            tries[try_key_of(record)].append(_Placed(file, record))
    # Records are keyed by their identity; one that counts may move behind those it supersedes.
    moved: dict[int, int] = {}
    dropped, superseded = set(), set()
    for places in tries.values():
        if len(places) == 1:
            continue
        selected = _select([path for path, _ in files], places, last_counts)
        for placed in places:
            if placed is selected:
                continue
            if placed.record == selected.record:
                dropped.add(id(placed.record))
            else:
                superseded.add(id(placed.record))
                moved[id(selected.record)] = placed.file
    return _joined(files, moved, dropped, superseded)


def check_shards(files: _Files) -> tuple[str, list[str]]:
    """Check that files are the shards of one run, if their records name their shards.

    A shard without tasks leaves an empty file.

    Args:
        files: paths with their records.

    Returns:
        Why they are not the whole run, or nothing; and a line for each shard that has fewer tries
        than items.

    Raises:
        ConfigurationError: they belong to different runs.
    """
    first: dict[object, tuple[str, Path]] = {}
    tries: dict[int, set[TryKey]] = defaultdict(set)
    items: dict[int, int] = {}
    shards = [record.shard for _, records in files for record in records if record.shard]
    # A shard names only the options that it was given, and another shard may have other options.
    not_given = dict.fromkeys(itertools.chain.from_iterable(shard.options for shard in shards), "")
    has_one_agent = not any(_has_several_agents(records) for _, records in files)
    for path, records in files:
        for record in records:
            for option, value in _of_run(record, not_given, has_one_agent).items():
                first_value, first_path = first.setdefault(option, (value, path))
                if first_value != value:
                    raise ConfigurationError(
                        f"{path}: this is not a shard of the run of {first_path}: {option} is "
                        f"{value or 'not given'} here and {first_value or 'not given'} there"
                    )
            if record.shard is not None:
                tries[record.shard.part].add(try_key_of(record))
                if record.shard.items is not None:
                    items[record.shard.part] = record.shard.items
    if not shards:
        return "", []
    parts = shards[0].parts
    absent = [part for part in range(1, parts + 1) if part not in tries]
    empty = sum(not records for _, records in files)
    problem = ""
    if len(absent) > empty:
        names = ", ".join(f"{part}/{parts}" for part in absent)
        noun = "shard" if len(absent) == 1 else "shards"
        problem = f"no file has an episode of the {noun} {names}"
    short = [
        f"shard {part}/{parts} has {len(tries[part])} of its {count} tries"
        for part, count in sorted(items.items())
        if len(tries[part]) < count
    ]
    return problem, short


def _has_several_agents(records: Iterable[EpisodeRecord]) -> bool:
    """Whether a shard belongs to a run of several agents, so other shards may have other ones."""
    return len({cell_of(record)._replace(treatment="") for record in records}) > 1


def _of_run(
    record: EpisodeRecord, not_given: Mapping[str, str], has_one_agent: bool
) -> dict[str, str]:
    """Return what has to be the same in all shards of a run, by the user's names for it.

    Args:
        record: a record of a shard.
        not_given: all options that shards name, each with an empty value.
        has_one_agent: whether the agent has to be the same, too.
    """
    shard = record.shard
    if shard is None:
        return {"the number of shards": ""}
    options = {**not_given, **shard.options}
    agent = {
        "--intercode-agent": record.agent,
        "--intercode-agent-arg": ", ".join(
            f"{name}={value}" for name, value in shown_arguments(record.agent_arguments).items()
        ),
    }
    return {
        "the number of shards": str(shard.parts),
        "the digest of --intercode-durations": shard.durations,
        **(agent if has_one_agent and "agent" not in options else {}),
        "--intercode-profile": record.profile,
        **{f"--intercode-{name}": value for name, value in options.items()},
    }


def _select(paths: Sequence[Path], places: Sequence[_Placed], last_counts: bool) -> _Placed:
    graded = [placed for placed in places if placed.record.graded and not placed.record.superseded]
    if not graded:
        return places[-1]
    selected, *later = graded
    for candidate in later:
        if candidate.record != selected.record and not last_counts:
            raise ConfigurationError(_conflict(paths, selected, candidate))
        selected = candidate
    return selected


def _conflict(paths: Sequence[Path], one: _Placed, other: _Placed) -> str:
    record = one.record
    difference = "other actions or times"
    if record.outcome != other.record.outcome:
        difference = f"{record.outcome} and {other.record.outcome}"
    return (
        f"{paths[other.file]}: try {record.task.repeat} of {key_of(record)} is also in "
        f"{paths[one.file]}, as another episode ({difference}); shards of one run do not repeat a "
        "try. With --last the last file counts; use `pytest-intercode compare` for two runs"
    )


def _joined(
    files: _Files, moved: Mapping[int, int], dropped: set[int], superseded: set[int]
) -> Merged:
    """Merge the records; one that counts comes after those of its try that do not."""
    merged: list[EpisodeRecord] = []
    record_counts, duplicates = [0] * len(files), [0] * len(files)
    waiting: dict[int, list[EpisodeRecord]] = defaultdict(list)
    for file, (_, records) in enumerate(files):
        for record in records:
            if id(record) in dropped:
                duplicates[file] += 1
                continue
            record_counts[file] += 1
            if moved.get(id(record), file) > file:
                waiting[moved[id(record)]].append(record)
            elif id(record) in superseded:
                merged.append(replace(record, superseded=True))
            else:
                merged.append(record)
        merged += waiting[file]
    return Merged(merged, counted_tries(merged), record_counts, duplicates, len(superseded))
