"""Which row of a try counts when results files are put together."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.format import from_row
from pytest_intercode.results.merging import Merged, check_shards, merge

_seconds = itertools.count()


def _record(task: str, outcome: str = "solved", **more: Any) -> EpisodeRecord:
    row = {
        "environment": "ic_bash",
        "dataset": "bash",
        "suite": "bash",
        "task_id": task,
        "turn_history": {"actions": []},
        "outcome": outcome,
        "reward": float(outcome == "solved"),
        "seconds": next(_seconds),
        **more,
    }
    return from_row(row)


def _merge(*files: list[EpisodeRecord], last_counts: bool = False) -> Merged:
    named = [(Path(f"{at}.jsonl"), rows) for at, rows in enumerate(files, 1)]
    return merge(named, last_counts=last_counts)


_BROKEN = "infrastructure-error"


def test_shards_follow_each_other() -> None:
    a, b, c = _record("a"), _record("b", "failed"), _record("a", repeat=2)
    merged = _merge([a, b], [c])
    assert merged.records == [a, b, c]
    assert (merged.record_counts, merged.duplicates, merged.superseded) == ([2, 1], [0, 0], 0)
    assert len(merged.tries) == 3


def test_the_same_row_is_kept_once() -> None:
    a, b = _record("a"), _record("b")
    merged = _merge([a, b], [replace(b), replace(a)], [replace(a)])
    assert [record.task.id for record in merged.records] == ["b", "a"]
    assert (merged.record_counts, merged.duplicates) == ([0, 1, 1], [2, 1, 0])


@pytest.mark.parametrize("broken_first", [True, False])
def test_what_was_graded_counts(broken_first: bool) -> None:
    broken, good, other = _record("a", _BROKEN), _record("a"), _record("b")
    files = [[broken], [good, other]] if broken_first else [[good, other], [broken]]
    merged = _merge(*files)
    superseded = replace(broken, superseded=True)
    expected = [superseded, good, other] if broken_first else [other, superseded, good]
    assert merged.records == expected
    assert {each.outcome for each in merged.tries} == {"solved"}
    assert merged.superseded == 1
    assert not broken.superseded  # records that are given stay as they are


def test_two_episodes_of_one_try_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        _merge([_record("z"), _record("a", repeat=2)], [_record("a", "failed", repeat=2)])
    assert str(caught.value).startswith(
        "2.jsonl: try 2 of bash/a is also in 1.jsonl, as another episode (solved and failed);"
    )
    with pytest.raises(ConfigurationError, match="another episode \\(other actions or times\\)"):
        _merge([_record("a")], [_record("a")])


def test_unless_the_last_counts_or_one_is_marked() -> None:
    first, last = _record("a"), _record("a", "failed")
    merged = _merge([first], [last], last_counts=True)
    assert merged.records == [replace(first, superseded=True), last]
    assert [each.outcome for each in merged.tries] == ["failed"]
    marked = replace(last, superseded=True)
    merged = _merge([first], [marked])
    assert merged.records == [marked, first]
    assert [each.outcome for each in merged.tries] == ["solved"]


def test_a_try_run_again_within_a_file() -> None:
    again = [_record("a", _BROKEN), _record("a", "failed")]
    other = [_record("a", _BROKEN), _record("a", _BROKEN)]
    for files in ((again, other), (other, again)):
        merged = _merge(*files)
        assert [each.outcome for each in merged.tries] == ["failed"]
        assert len(merged.records) == 4
    merged = _merge(again, [_record("b"), replace(again[0]), replace(again[1])])
    assert [each.outcome for each in merged.tries] == ["solved", "failed"]


def test_only_infrastructure_errors() -> None:
    merged = _merge([_record("a", _BROKEN)], [_record("a", _BROKEN)])
    assert [record.superseded for record in merged.records] == [True, False]
    assert len(merged.tries) == 1


def test_files_of_nothing() -> None:
    assert _merge([], [_record("a")]).record_counts == [0, 1]


# -- whether they belong together


def _shard(part: int, *tasks: str, parts: int = 3, **more: Any) -> list[EpisodeRecord]:
    row = {key: more.pop(key) for key in ("agent", "profile", "agent_arguments") if key in more}
    shard = {"part": part, "parts": parts, **more}
    return [_record(task, shard=shard, **row) for task in tasks]


def _check(*files: list[EpisodeRecord]) -> tuple[str, list[str]]:
    return check_shards([(Path(f"{at}.jsonl"), rows) for at, rows in enumerate(files, 1)])


def test_all_shards_of_a_run() -> None:
    assert _check(_shard(1, "a"), _shard(3, "c"), _shard(2, "b")) == ("", [])
    assert _check(_shard(1, "a"), _shard(2, "b"), []) == ("", [])  # more shards than tasks
    assert _check([_record("a")], [_record("b", agent="other")]) == ("", [])  # of older versions


def test_shards_that_are_missing() -> None:
    assert _check(_shard(1, "a"), _shard(3, "c"))[0] == "no file has an episode of the shard 2/3"
    assert _check(_shard(1, "a"))[0] == "no file has an episode of the shards 2/3, 3/3"
    assert _check(_shard(1, "a"), [])[0] == "no file has an episode of the shards 2/3, 3/3"


def test_shards_that_are_not_complete() -> None:
    files = _shard(1, "a", items=1), _shard(2, "b", "b", "c", items=3), _shard(3, "d")
    assert _check(*files) == ("", ["shard 2/3 has 2 of its 3 tries"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"parts": 4}, "the number of shards is 4 here and 3 there"),
        ({"durations": "abc"}, "the digest of --intercode-durations is abc here and not given"),
        ({"agent": "other"}, "--intercode-agent is other here and not given there"),
        ({"agent_arguments": {"model": "x"}}, "--intercode-agent-arg is model=x here and not"),
        ({"profile": "paper"}, "--intercode-profile is paper here and not given there"),
        ({"options": {"max-turns": "3"}}, "--intercode-max-turns is 3 here and not given there"),
        ({"options": {"kit": "always"}}, "--intercode-kit is always here and not given there"),
    ],
)
def test_shards_of_other_runs(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^2\.jsonl: .*1\.jsonl: {message}"):
        _check(_shard(1, "a"), _shard(2, "b", **more))


def test_an_option_that_only_the_first_shard_was_given() -> None:
    with pytest.raises(ConfigurationError, match="--intercode-kit is not given here and always th"):
        _check(_shard(1, "a", options={"kit": "always"}), _shard(2, "b"))


def test_what_is_no_shard_beside_shards() -> None:
    with pytest.raises(ConfigurationError, match="the number of shards is not given here and 3 th"):
        _check(_shard(1, "a"), [_record("b")])
