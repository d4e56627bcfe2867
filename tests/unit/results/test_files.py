"""The results file: locked while it is written, whole rows at any time, wherever the disk ends."""

from __future__ import annotations

import itertools
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results import files
from pytest_intercode.results.files import ResultsFile, read_records
from pytest_intercode.results.format import from_row, to_line
from pytest_intercode.system.files import write_file

IN_USE = "another run is writing to this file"


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
    write_file(path, "other", existing="replace")


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


@contextmanager
def _interrupt_at(count: int) -> Iterator[None]:
    """Raise KeyboardInterrupt before that bytecode, of those that run while rows are written."""
    countdown = itertools.count(count, -1)

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename != files.__file__ or frame.f_code.co_name == "write":
            return None  # what was not taken yet cannot be written
        frame.f_trace_opcodes = True
        if event == "opcode" and next(countdown) == 1:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def test_an_interrupt_at_any_moment_leaves_each_row_once(tmp_path: Path) -> None:
    for count in itertools.count(1):
        file = ResultsFile(tmp_path / f"{count}.jsonl")
        numbers: list[int] = []
        try:
            with _interrupt_at(count):
                for number in range(3):
                    numbers.append(number)
                    file.write(_line(number))
        except KeyboardInterrupt:
            whole = file.path.read_bytes()
            assert whole.endswith(b"\n") or not whole
        else:
            break
        file.retry()
        assert _ids(file.path) == [str(number) for number in numbers], count
        assert (file.written, file.unwritten) == (len(numbers), 0)
        file.close()
    assert count > 100


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


# -- what is there already


def _earlier(path: Path) -> str:
    """Write the results of an earlier run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = f"{_line(7)}\n{_line(8)}\n"
    path.write_text(content)
    return content


def test_earlier_results_keep_their_name_until_the_first_row_and_are_kept_then(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.jsonl"
    content = _earlier(path)
    path.chmod(0o640)
    unused = ResultsFile(path)
    assert unused.untouched
    unused.close()
    assert [each.name for each in tmp_path.iterdir()] == ["r.jsonl"]
    for number in (1, 2):  # as each day does it that runs the same command again
        file = ResultsFile(path)
        file.write(_line(number))
        assert not file.untouched
        kept = tmp_path / f"r.jsonl.{number}"
        assert file.notes == [f"{path}: was there already; what it held is in {kept} now"]
        with pytest.raises(ConfigurationError, match=IN_USE):
            ResultsFile(path)
        file.write(_line(number))
        file.close()
        assert _ids(path) == [str(number)] * 2
        assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "r.jsonl.1").read_text() == content
    assert _ids(tmp_path / "r.jsonl.2") == ["1", "1"]
    assert len(list(tmp_path.iterdir())) == 3


def test_earlier_results_behind_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "runs" / "real.jsonl", tmp_path / "r.jsonl"
    content = _earlier(real)
    link.symlink_to(real)
    file = ResultsFile(link)
    file.write(_line(1))
    file.write(_line(2))
    file.close()
    assert link.is_symlink()
    assert _ids(link) == ["1", "2"]
    assert (real.parent / "real.jsonl.1").read_text() == content


def test_a_full_disk_leaves_earlier_results_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    content = _earlier(path)
    file = ResultsFile(path)
    with _largest_file(40):
        file.write(_line(1))
        assert file.problem == "File too large"
        assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"r.jsonl": content}
    file.write(_line(2))
    file.close()
    assert (file.problem, _ids(path)) == ("", ["1", "2"])
    assert (tmp_path / "r.jsonl.1").read_text() == content


# Writes three rows, and is killed before the N-th call that the system has for files.
_KILLED = """
import itertools, os, pathlib, signal, sys

path, number, links, line = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if links == "no links":
    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")
    os.link = pathlib.Path.hardlink_to = refuse
from pytest_intercode.results.files import ResultsFile

calls = itertools.count(1)

def count():
    if next(calls) == number:
        os.kill(os.getpid(), signal.SIGKILL)

def watch(event, _):
    if event == "open" or event.startswith("os."):
        count()

def write_counted(*arguments, write=os.write):
    count()
    return write(*arguments)

os.write = write_counted
sys.addaudithook(watch)
file = ResultsFile(path)
for _ in range(3):
    file.write(line)
file.close()
"""


@pytest.mark.parametrize("links", ["links", "no links"])
def test_a_run_that_is_killed_at_any_moment_leaves_earlier_results(
    tmp_path: Path, links: str
) -> None:
    for number in range(1, 40):
        folder = tmp_path / str(number)
        content = _earlier(folder / "r.jsonl")
        done = subprocess.run(
            [sys.executable, "-c", _KILLED, str(folder / "r.jsonl"), str(number), links, _line(1)],
            capture_output=True,
            text=True,
        )
        files = [each.read_text() for each in folder.glob("r.jsonl*")]
        assert content in files, (number, done.stderr)
        whole = [each for each in files if each not in (content, "")]
        assert all(text == f"{_line(1)}\n" * text.count("\n") for text in whole)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    else:
        pytest.fail("it was always killed")
    assert number > 5
    assert sorted(each.name for each in folder.iterdir()) == ["r.jsonl", "r.jsonl.1"]
    assert _ids(folder / "r.jsonl") == ["1", "1", "1"]


# As an ordinary user, whom modes hold back.
_HELD_BACK = """
import os, pathlib, sys
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.files import ResultsFile

if os.getuid() == 0:
    os.setuid(65534)
try:
    ResultsFile(pathlib.Path(sys.argv[1]))
except ConfigurationError as error:
    print(error)
"""


def test_a_folder_that_cannot_be_written_to_is_named_at_once() -> None:
    with tempfile.TemporaryDirectory() as folder:  # below one that all users may enter
        path = Path(folder, "r.jsonl")
        content = _earlier(path)
        path.chmod(0o666)
        path.parent.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", _HELD_BACK, str(path)], capture_output=True, text=True
        )
        path.parent.chmod(0o755)
        assert done.stdout == (
            f"--intercode-results={path}: is not empty, and is kept, but no file can be made next "
            "to it, as its folder is not writable; name another file\n"
        ), done.stderr
        assert path.read_text() == content


def test_a_name_of_a_packed_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Rows are appended, so that it would hold what no reader of its name can read."""
    for name in ("r.jsonl.gz", "r.JSONL.GZ"):
        path = tmp_path / name
        with pytest.raises(ConfigurationError) as caught:
            ResultsFile(path)
        assert str(caught.value) == (
            f"--intercode-results={path}: rows are appended to this file, so it cannot be "
            "compressed; name one without .gz, and compress it after the run"
        )
        assert not path.exists()
