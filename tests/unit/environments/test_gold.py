"""What is known of golds, from try to try and from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.environments.gold import GoldCache

KEY, OTHER = "0" * 31 + "1", "0" * 31 + "2"
LEFT, ELSE = "a" * 32, "b" * 32


def test_what_is_noted_is_known_to_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "golds"
    known, beside = GoldCache(file), GoldCache(file)
    assert not known.has(KEY)
    known.record_digest(KEY, ELSE)
    beside.record_digest(OTHER, LEFT)
    known.record_digest(KEY, LEFT)
    known.record_digest(KEY, LEFT)  # is no news
    assert file.read_text() == f"{KEY} {ELSE}\n{OTHER} {LEFT}\n{KEY} {LEFT}\n"
    again = GoldCache(file)
    assert [again.digest(key) for key in (KEY, OTHER, "")] == [LEFT, LEFT, None]
    assert [again.has(key) for key in (KEY, OTHER, "")] == [True, True, False]
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage", ["no such thing\n", f"{KEY} {LEFT}", "\xff\0", f"{KEY}  {LEFT}\n"]
)
def test_a_file_that_is_damaged_tells_what_is_whole(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "golds"
    file.write_bytes(f"{OTHER} {LEFT}\n{damage}".encode("latin-1"))
    known = GoldCache(file)
    assert (known.digest(OTHER), known.digest(KEY)) == (LEFT, None)


def test_a_file_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    known = GoldCache(tmp_path)  # a folder
    known.record_digest(KEY, LEFT)
    assert known.digest(KEY) == LEFT


def test_a_file_that_has_grown_too_large_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.environments.gold._MAX_FILE_BYTES", 100)
    file = tmp_path / "golds"
    GoldCache(file).record_digest(KEY, LEFT)
    GoldCache(file).record_digest(OTHER, LEFT)
    assert GoldCache(file).digest(KEY) is None
    assert not file.exists()


def test_what_is_not_to_be_known_is_forgotten() -> None:
    known = GoldCache()
    known.record_digest(KEY, LEFT)
    known.record_digest(KEY, None)
    assert not known.has(KEY)


def test_gold_runs_beside_an_agent_when_the_one_before_left_something_else() -> None:
    known = GoldCache()
    known.record_digest(KEY, LEFT)
    known.record_match(KEY, matches=False)
    assert not known.has(KEY)
    known.record_match(KEY, matches=True)
    assert known.has(KEY)
