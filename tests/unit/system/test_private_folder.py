"""Folders for sockets: private, and swept when their process is gone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import SandboxError
from pytest_intercode.system.private_folder import PrivateFolder

HOLD = """
from pytest_intercode.system.private_folder import PrivateFolder
folder = PrivateFolder()
print(folder.make(), flush=True)
input()
"""


@pytest.fixture(autouse=True)
def common(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return where the folders of this test's processes are."""
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield short / f"pytest-intercode-{os.getuid()}"
    shutil.rmtree(short)


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


def test_folders_of_the_dead_are_removed_and_of_the_living_are_not(common: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    paths = []
    for process in processes:
        assert process.stdout is not None
        paths.append(Path(process.stdout.readline().strip()))
    dead, living = processes
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    assert all(path.exists() for path in paths)
    folder = PrivateFolder()
    assert [path.exists() for path in paths] == [False, True]
    folder.close()
    assert [path.exists() for path in paths] == [False, True]
    living.communicate("\n", timeout=10)
    PrivateFolder().close()
    assert not common.exists()
    for process in processes:
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


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
