"""The results file: locked while it is written, whole rows at any time, wherever the disk ends."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_intercode.core.files import write_file
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.files import ResultsFile, read_records
from pytest_intercode.results.format import from_row, to_line

IN_USE = "another run writes to this file"


def _line(number: int = 0) -> str:
    row = {"environment": "ic_bash", "task_id": str(number), "turn_history": {"actions": ["ls"]}}
    return to_line(from_row(row))


def _ids(path: Path) -> list[str]:
    return [record.task.id for record in read_records(path)]


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: a write stops in the middle of a row."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_second_run_is_refused_until_the_first_is_over(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    first = ResultsFile(path)
    first.write(_line(1))
    for resume in (False, True):
        with pytest.raises(ConfigurationError, match=IN_USE) as refused:
            ResultsFile(path, resume=resume)
        assert "\n" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="a run writes to this file"):
        write_file(path, "other")
    assert _ids(path) == ["1"]  # reading is allowed, and nothing was lost
    first.write(_line(2))
    first.close()
    second = ResultsFile(path, resume=True)
    second.write(_line(3))
    second.close()
    assert _ids(path) == ["1", "2", "3"]
    write_file(path, "other")


def test_the_lock_goes_with_the_process(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    program = (
        "import sys, time, pathlib\n"
        "from pytest_intercode.results.files import ResultsFile\n"
        "file = ResultsFile(pathlib.Path(sys.argv[1]))\n"
        "print('locked', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(ConfigurationError, match=IN_USE):
            ResultsFile(path)
        other.send_signal(signal.SIGKILL)
        other.wait(10)
    ResultsFile(path).close()


def test_a_full_disk_leaves_whole_rows_and_what_waits_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    file = ResultsFile(path)
    file.write(_line(1))
    whole = path.read_bytes()
    with _largest_file(len(whole) + 40):
        file.write(_line(2))
        assert path.read_bytes() == whole
        assert (file.written, file.unwritten) == (1, 1)
        assert file.problem == "File too large"
        file.write(_line(3))
        assert (file.written, file.unwritten) == (1, 2)
        assert path.read_bytes() == whole
    file.write(_line(4))
    assert (file.written, file.unwritten, file.problem) == (4, 0, "")
    assert _ids(path) == ["1", "2", "3", "4"]
    file.close()


def test_a_device_that_is_full_is_named(tmp_path: Path) -> None:
    file = ResultsFile(Path("/dev/full"))
    file.write(_line())
    assert (file.problem, file.written) == ("No space left on device", 0)
    file.close()
    with pytest.raises(ConfigurationError, match=r"cannot be written: Not a directory"):
        ResultsFile(Path("/dev/null/r.jsonl"))


def test_a_removed_file_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "r.jsonl"
    file = ResultsFile(path)
    file.write(_line(1))
    path.unlink()
    path.parent.rmdir()
    file.write(_line(2))
    assert _ids(path) == ["1", "2"]
    assert [note.split(": ")[1] for note in file.notes] == [
        f"was removed while the run wrote to it; all of its rows are in {path}"
    ]
    with pytest.raises(ConfigurationError, match=IN_USE):
        ResultsFile(path)
    file.close()


def test_a_replaced_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    file = ResultsFile(path)
    file.write(_line(1))
    (tmp_path / "other").write_text("mine\n")
    (tmp_path / "other").replace(path)
    file.write(_line(2))
    file.close()
    assert path.read_text() == "mine\n"
    assert file.path.parent == tmp_path
    assert _ids(file.path) == ["1", "2"]
    assert str(file.path) in file.notes[0]


def test_rows_that_have_no_place_any_more_are_not_called_safe(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "r.jsonl"
    file = ResultsFile(path)
    file.write(_line(1))
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    file.write(_line(2))
    assert file.lost
    assert file.problem
    path.parent.unlink()
    file.retry()
    assert not file.lost
    assert _ids(path) == ["1", "2"]
    file.close()


@pytest.mark.parametrize(
    "torn", ['{"environment": "ic', "", "\n"], ids=["truncated", "whole", "empty line"]
)
def test_a_truncated_row_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"{_line(1)}\n{torn}")
    file = ResultsFile(path, resume=True)
    assert len(file.notes) == bool(torn.strip())
    file.write(_line(2))
    file.close()
    assert _ids(path) == ["1", "2"]


def test_a_row_costs_little(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "r.jsonl")
    line = _line()
    began = time.process_time()
    for _ in range(1000):
        file.write(line)
    assert time.process_time() - began < 1.0
    assert file.path.stat().st_size == 1000 * (len(line) + 1)
    file.close()
