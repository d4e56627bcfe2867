"""Folders for sockets: private, and removed when their process is gone, however it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import SandboxError
from pytest_intercode.system.private_folder import PrivateFolder
from tests.support.backends import processes_with, short_temporary_folder

HOLD = """
from pytest_intercode.system.private_folder import PrivateFolder
folder = PrivateFolder()
print(folder.make(), flush=True)
input()
"""


@pytest.fixture(autouse=True)
def common(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return where the folders of this test's processes are."""
    with short_temporary_folder(monkeypatch) as folder:
        yield folder / f"pytest-intercode-{os.getuid()}"


def test_private(common: Path) -> None:
    folder = PrivateFolder()
    first, second = folder.make(), folder.make()
    assert first != second
    assert first.parent == second.parent
    assert first.parent.parent == common
    assert first.stat().st_mode & 0o777 == 0o777  # the server's own account writes there
    assert first.parent.stat().st_mode & 0o777 == 0o700
    assert common.stat().st_mode & 0o777 == 0o700
    (first / "mysql.sock").touch()
    folder.close()
    folder.close()
    assert not common.exists()


@contextlib.contextmanager
def held() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a process that has a folder, until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip()).parent


def watcher_of(folder: Path) -> int:
    """Return the watcher of a folder, or of the only one in a common folder."""
    while not (pids := processes_with(str(folder))):  # it is in exec(2), without arguments yet
        time.sleep(0.01)
    (pid,) = pids
    return pid


def test_the_watcher_removes_the_folder_of_a_process_that_was_killed(common: Path) -> None:
    with held() as (_, living):
        with held() as (process, dead):
            process.kill()
        while dead.exists():
            time.sleep(0.01)
        assert living.exists()
    while common.exists():  # the watcher of the last one removes it
        time.sleep(0.01)


def test_the_next_process_removes_what_a_watcher_could_not(common: Path) -> None:
    with held() as (_, living):
        with held() as (process, dead):
            os.kill(watcher_of(dead), signal.SIGKILL)
            process.kill()
        assert dead.exists()
        folder = PrivateFolder()
        assert [dead.exists(), living.exists()] == [False, True]
        folder.close()
        assert living.exists()


def test_a_watcher_that_was_stopped_or_killed_is_no_obstacle(common: Path) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        folder = PrivateFolder()
        os.kill(watcher_of(common), number)
        folder.close()
        assert not common.exists()
        assert processes_with(str(common)) == []


def test_processes_that_begin_and_end_at_a_time_keep_their_folders(common: Path) -> None:
    """Each removes the common folder if it is empty, and what it finds without a lock."""
    script = """
from pytest_intercode.system.private_folder import PrivateFolder
for _ in range(50):
    folder = PrivateFolder()
    path = folder.make()
    (path / "socket").touch()
    assert (path / "socket").exists()
    folder.close()
    assert not path.exists()
"""
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert not common.exists()


@pytest.mark.parametrize("what", ["open", "file", "link"])
def test_a_common_folder_that_others_can_open_is_refused(common: Path, what: str) -> None:
    if what == "open":
        common.mkdir(mode=0o755)
    elif what == "file":
        common.touch()
    else:
        target = common.parent / "theirs"
        target.mkdir(mode=0o700)
        common.symlink_to(target)
    with pytest.raises(SandboxError, match=str(common)):
        PrivateFolder()


def test_a_long_temporary_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket has room for 107 bytes."""
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder = PrivateFolder()
    assert len(str(folder.make() / "mysql.sock")) < 100
    folder.close()
    assert list(long.iterdir()) == []


def test_a_forked_child_removes_nothing() -> None:
    folder = PrivateFolder()
    path = folder.make()
    child = os.fork()
    if child == 0:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert path.exists()
    folder.close()
