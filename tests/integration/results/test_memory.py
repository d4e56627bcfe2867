"""What commands on whole results files hold in memory of them."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.turn import Turn
from pytest_intercode.results.files import to_text
from tests.support.cell_records import tries_of

_TURNS, _STATE = 50_000, 150_000  # characters of an episode


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs of large episodes, of which most is the end state."""
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        records = [
            replace(
                record,
                turns=(Turn("ls", f"{path.name} {number}".ljust(_TURNS, "x"), True),),
                state={"agent": {"output": str(number).ljust(_STATE, "y")}},
            )
            for number, record in enumerate(tries_of([f"t{number}" for number in range(30)]))
        ]
        path.write_text(to_text(records), encoding="utf-8")
    assert main(["compare", *map(str, paths)]) == 0  # what is imported is there from now on
    return paths


def _share_in_memory(arguments: list[str], paths: list[Path]) -> float:
    """Return the peak of a command's memory, as a share of the size of the files."""
    tracemalloc.start()
    try:
        assert main(arguments) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak / sum(path.stat().st_size for path in paths)


def test_end_states_are_not_compared(runs: list[Path]) -> None:
    assert _share_in_memory(["compare", *map(str, runs)], runs) < 0.5


def test_episodes_are_merged_from_one_copy(runs: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    arguments = ["merge", str(output), *map(str, runs), "--last"]
    assert _share_in_memory(arguments, runs) < 1.5
    assert output.stat().st_size > sum(path.stat().st_size for path in runs)
