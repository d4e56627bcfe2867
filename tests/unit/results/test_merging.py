"""Which row of a try counts when results files are put together."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.merging import Merged, merge

_seconds = itertools.count()


def _row(task: str, outcome: str = "solved", **more: Any) -> dict[str, Any]:
    return {
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


def _merge(*files: list[dict[str, Any]], last_counts: bool = False) -> Merged:
    named = [(Path(f"{at}.jsonl"), rows) for at, rows in enumerate(files, 1)]
    return merge(named, last_counts=last_counts)


_BROKEN = "infrastructure-error"


def test_shards_follow_each_other() -> None:
    a, b, c = _row("a"), _row("b", "failed"), _row("a", repeat=2)
    merged = _merge([a, b], [c])
    assert merged.rows == [a, b, c]
    assert (merged.kept, merged.doubled, merged.superseded) == ([2, 1], [0, 0], 0)
    assert len(merged.tries) == 3


def test_the_same_row_is_kept_once() -> None:
    a, b = _row("a"), _row("b")
    merged = _merge([a, b], [dict(b), dict(a)], [dict(a)])
    assert [row["task_id"] for row in merged.rows] == ["b", "a"]
    assert (merged.kept, merged.doubled) == ([0, 1, 1], [2, 1, 0])


@pytest.mark.parametrize("broken_first", [True, False])
def test_what_was_graded_counts(broken_first: bool) -> None:
    broken, good, other = _row("a", _BROKEN), _row("a"), _row("b")
    files = [[broken], [good, other]] if broken_first else [[good, other], [broken]]
    merged = _merge(*files)
    superseded = {**broken, "superseded": True}
    expected = [superseded, good, other] if broken_first else [other, superseded, good]
    assert merged.rows == expected
    assert {each.outcome for each in merged.tries} == {"solved"}
    assert merged.superseded == 1
    assert "superseded" not in broken  # rows that are given stay as they are


def test_two_episodes_of_one_try_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        _merge([_row("z"), _row("a", repeat=2)], [_row("a", "failed", repeat=2)])
    assert str(caught.value).startswith(
        "2.jsonl: try 2 of bash/a is in 1.jsonl, too, and is another episode (solved and failed);"
    )
    with pytest.raises(ConfigurationError, match="another episode \\(other actions or times\\)"):
        _merge([_row("a")], [_row("a")])


def test_unless_the_last_counts_or_one_is_marked() -> None:
    first, last = _row("a"), _row("a", "failed")
    merged = _merge([first], [last], last_counts=True)
    assert merged.rows == [{**first, "superseded": True}, last]
    assert [each.outcome for each in merged.tries] == ["failed"]
    marked = {**last, "superseded": True}
    merged = _merge([first], [marked])
    assert merged.rows == [marked, first]
    assert [each.outcome for each in merged.tries] == ["solved"]


def test_a_try_run_again_within_a_file() -> None:
    again = [_row("a", _BROKEN), _row("a", "failed")]
    other = [_row("a", _BROKEN), _row("a", _BROKEN)]
    for files in ((again, other), (other, again)):
        merged = _merge(*files)
        assert [each.outcome for each in merged.tries] == ["failed"]
        assert len(merged.rows) == 4
    merged = _merge(again, [_row("b"), dict(again[0]), dict(again[1])])
    assert [each.outcome for each in merged.tries] == ["solved", "failed"]


def test_only_spoiled() -> None:
    merged = _merge([_row("a", _BROKEN)], [_row("a", _BROKEN)])
    assert [row.get("superseded") for row in merged.rows] == [True, None]
    assert len(merged.tries) == 1


def test_files_of_nothing() -> None:
    assert _merge([], [_row("a")]).kept == [0, 1]
