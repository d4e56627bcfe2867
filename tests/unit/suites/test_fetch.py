"""Fetching from a server beside us: what is there is whole and right, whatever goes wrong."""

from __future__ import annotations

import _thread
import contextlib
import fcntl
import hashlib
import os
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from pytest_intercode import cli
from pytest_intercode.cli import fetch as command
from pytest_intercode.errors import FetchError
from pytest_intercode.suites import download, upstream
from pytest_intercode.suites.catalogue import dataset_names, default_data, fetch_command
from pytest_intercode.suites.upstream import (
    ALFA_COMMIT,
    ALFA_URL,
    BASE_URL,
    COMMIT,
    DATASETS,
    RemoteFile,
    files_of,
)
from tests.support.mirror import (
    CONTENT,
    Handler,
    Server,
    bomb,
    broken_off,
    busy,
    changed,
    endless,
    hung_up,
    other,
    serving,
    shorter,
    table_of,
    too_many,
    turning,
)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(CONTENT) as made:
        yield made


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our small repository's table, no waits, and no mirror of whoever runs the tests."""
    monkeypatch.setattr(upstream, "_table", lambda: table_of(CONTENT))
    monkeypatch.setattr(download, "_RETRY_DELAYS", (0.0, 0.0))
    monkeypatch.delenv("INTERCODE_URL", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "new" / "data"


def fetch(server: Server, folder: Path, *names: str) -> int:
    return cli.main(["fetch", *names, "--to", str(folder), "--url", server.url])


def tree(folder: Path) -> dict[str, bytes]:
    return {
        f"data/{path.relative_to(folder)}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_gets_what_is_missing(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(server, folder, "mbpp", "ic-ctf", "mbpp") == 0
    assert tree(folder) == CONTENT
    assert (folder / "ctf/task_assets/11/run me.sh").stat().st_mode & 0o777 == 0o755
    assert (folder / "ctf/ic_ctf.json").stat().st_mode & 0o777 == 0o644
    assert not (folder / ".unfinished").exists()
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines() == [
        f"mbpp: 1 file in {folder} (1 new)",
        f"ic-ctf: 3 files in {folder} (3 new)",
        f"ic-ctf: {DATASETS['ic-ctf'].note}",
        f"run: pytest --intercode-dataset=mbpp,ic-ctf --intercode-data={folder} "
        "--intercode-agent=...",
    ]
    assert len(server.asked) == 3  # what is empty needs no request
    assert "/data/ctf/task_assets/11/run%20me.sh" in server.asked
    (folder / "ctf/ic_ctf.json").write_text("edited")
    (folder / "ctf/task_assets/11/run me.sh").unlink()
    (folder / "own.txt").write_text("kept")
    assert fetch(server, folder, "mbpp", "ic-ctf") == 0
    assert len(server.asked) == 5
    assert tree(folder) == {**CONTENT, "data/own.txt": b"kept"}


@pytest.mark.parametrize("fault", [broken_off, hung_up, busy])
def test_tries_again(server: Server, folder: Path, fault: Callable[[Handler, bytes], None]) -> None:
    server.faults = [fault, fault]
    assert fetch(server, folder, "mbpp") == 0
    assert tree(folder) == {path: CONTENT[path] for path in CONTENT if "mbpp" in path}
    assert len(server.asked) == 3


def test_waits_as_long_as_a_server_asks_for(server: Server, folder: Path) -> None:
    server.faults = [too_many]
    start = time.monotonic()
    assert fetch(server, folder, "mbpp") == 0
    assert time.monotonic() - start >= 1
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("fault", "tries", "why"),
    [
        (broken_off, 3, "the connection broke off"),
        (hung_up, 3, "cannot be reached"),
        (busy, 3, "the server says 503 Service Unavailable"),
        (lambda handler, _: handler.send_error(404), 1, "the server says 404 Not Found"),
        (other, 1, "this is not the expected file (it has more than 10 bytes)"),
        (changed, 1, "this is not the expected file (its hash is not "),
        (shorter, 1, "this is not the expected file (its hash is not "),
        (endless, 1, "this is not the expected file (it has more than 10 bytes)"),
        (bomb, 1, "this is not the expected file (it has more than 10 bytes)"),
        (turning, 3, "cannot be reached: Exceeded 30 redirects"),
    ],
    ids=[
        *("broken-off", "hung-up", "busy", "missing", "other", "changed", "shorter", "endless"),
        *("bomb", "turning"),
    ],
)
def test_gives_up_and_goes_on_later(
    server: Server,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    fault: Callable[[Handler, bytes], None],
    tries: int,
    why: str,
) -> None:
    (folder / "ctf").mkdir(parents=True)
    (folder / "ctf/ic_ctf.json").write_bytes(CONTENT["data/ctf/ic_ctf.json"])
    server.faults = [fault] * tries
    assert fetch(server, folder, "ic-ctf", "mbpp") == 1
    assert len(server.asked) == tries
    assert set(tree(folder)) == {"data/ctf/ic_ctf.json"}
    assert list(folder.glob("*")) == [folder / "ctf"]  # nothing unfinished
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    url = f"{server.url}/data/ctf/task_assets/11/run%20me.sh"
    assert line.startswith(f"pytest-intercode: ic-ctf: {url}: ")
    assert why in line
    assert line.endswith(" 1 of 3 files are complete; run the same command again to continue")
    assert fetch(server, folder, "ic-ctf", "mbpp") == 0
    assert tree(folder) == CONTENT


def test_nobody_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert cli.main(["fetch", "mbpp", f"--to={folder}", f"--url=http://127.0.0.1:{port}"]) == 1
    assert f"127.0.0.1:{port} cannot be reached: Connection refused. 0 of 1 " in (
        capsys.readouterr().err
    )
    assert tree(folder) == {}


def test_the_environment_names_a_mirror(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERCODE_URL", f"{server.url}/")
    assert cli.main(["fetch", "mbpp", "--to", str(folder)]) == 0
    assert server.asked == ["/data/python/mbpp/ic_mbpp.json"]


def test_the_usual_folder(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.main(["fetch", "mbpp", "--url", server.url]) == 0
    assert tree(tmp_path / "pytest-intercode/data")
    assert "run: pytest --intercode-dataset=mbpp --intercode-agent=..." in capsys.readouterr().out
    monkeypatch.setenv("INTERCODE_DATA", "/elsewhere")
    assert cli.main(["fetch", "mbpp", "--url", server.url]) == 0
    assert f" --intercode-data={default_data()} " in capsys.readouterr().out
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert default_data() == Path.home() / ".cache/pytest-intercode/data"


def test_what_a_killed_run_left_goes(server: Server, folder: Path) -> None:
    (folder / ".unfinished").mkdir(parents=True)
    (folder / ".unfinished/half").write_text("x")
    assert fetch(server, folder, "mbpp") == 0
    assert not (folder / ".unfinished").exists()


def test_one_fetch_at_a_time(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir(parents=True)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert fetch(server, folder, "mbpp") == 1
    assert "another fetch is writing to it; wait for that, or" in capsys.readouterr().err
    os.close(held)
    assert fetch(server, folder, "mbpp") == 0


def test_a_folder_that_cannot_be(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert fetch(server, tmp_path / "file" / "data", "mbpp") == 1
    assert "file/data: cannot be written to: Not a directory" in capsys.readouterr().err


def test_a_target_that_cannot_be(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "python").touch()
    assert fetch(server, folder, "mbpp") == 1
    assert f"pytest-intercode: {folder}: cannot be written to: " in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["python"]


def test_interrupted(server: Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(handler: Handler, content: bytes) -> None:
        handler.answer(content[:100_000], len(content))
        while not any(file.stat().st_size for file in folder.glob("**/.unfinished/*")):
            time.sleep(0.001)  # not before the file is written to: none else would close it
        _thread.interrupt_main()
        handler.server.faults.append(interrupt)

    server.faults = [interrupt]
    assert fetch(server, folder, "mbpp") == 130
    assert capsys.readouterr().err == "pytest-intercode: interrupted\n"
    assert tree(folder) == {}
    assert list(folder.iterdir()) == []


def test_without_pooch(
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert fetch(server, folder, "mbpp") == 1
    assert "fetching needs pooch: pip install 'pytest-intercode[fetch]'" in capsys.readouterr().err


def read_terminal(descriptor: int) -> str:
    """Return all that was written to a terminal whose other end is closed, and close it.

    What was written arrives in pieces, and on Linux the end is an error.
    """
    content = b""
    with os.fdopen(descriptor, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while piece := terminal.read(100_000):
            content += piece
    return content.decode()


def test_progress_on_a_terminal(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert fetch(server, folder, "mbpp") == 0
        monkeypatch.undo()
    shown = read_terminal(ours)
    assert "[1/1] data/python/mbpp/ic_mbpp.json:" in shown
    assert "340k" in shown
    assert shown.endswith(" \r")  # the line is cleared


@pytest.mark.parametrize(
    ("content", "is_right"), [(b"large\n", True), (b"other\n", False), (b"large\n" * 99, False)]
)
def test_a_large_file_is_the_one_that_git_names(
    content: bytes, is_right: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What git hash-object says of the first.
    file = RemoteFile("test/large", "f60ccf3732fd547d393fe12095261c4d49cc94be", None)
    monkeypatch.setattr(upstream, "_table", lambda: (file,))
    with serving({file.path: content}) as server:
        assert (fetch(server, folder, "nyu-ctf") == 0) is is_right
        assert (folder / "nyu-ctf/test/large").is_file() is is_right
        server.asked.clear()
        assert (fetch(server, folder, "nyu-ctf") == 0) is is_right
        assert server.asked == ([] if is_right else ["/test/large"])


def test_each_dataset_comes_from_its_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def download(file: RemoteFile, base: str, place: Path, label: str) -> Path:
        asked.append(f"{base}/{file.path}")
        made = place / "file"
        made.write_bytes(b"[]")
        return made

    monkeypatch.setattr(command, "download", download)
    content = {"src/icalfa/assets/datasets/nl2bash_fs_1.json": b"[]", "LICENSE.txt": b"[]"}
    monkeypatch.setattr(upstream, "_table", lambda: table_of({**CONTENT, **content}))
    alone = replace(DATASETS["alfa"], filesystems=())
    monkeypatch.setitem(DATASETS, "alfa", alone)
    assert cli.main(["fetch", "alfa", "mbpp", "--to", str(folder)]) == 0
    assert asked == [
        f"{ALFA_URL}/src/icalfa/assets/datasets/nl2bash_fs_1.json",
        f"{ALFA_URL}/LICENSE.txt",
        f"{BASE_URL}/data/python/mbpp/ic_mbpp.json",
    ]
    assert (folder / "alfa/nl2bash_fs_1.json").is_file()
    assert (folder / "alfa/LICENSE.txt").is_file()  # beside what it is the licence of


# -- the command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch"], "the following arguments are required: NAME"),
        (
            ["fetch", "spidr"],
            "spidr: there is no such dataset. Allowed: nl2bash, *. Did you mean 'spider'?",
        ),
        (["fetch", "apps"], "apps: InterCode's repository contains no rows of APPS"),
        (["fetch", "mbpp", "--url", "ftp://x"], "an address with http:// or https:// is needed"),
        (["fetch", "mbpp", "--base-image", "x"], "the form NAME=REPLACEMENT is needed"),
        (["fitch"], "invalid choice: 'fitch'"),
    ],
)
def test_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(part in said for part in message.split("*"))


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert f"fetch     {command.HELP}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pytest-intercode {version('pytest-intercode')}\n"


def test_the_command_is_light() -> None:
    code = (
        "import sys\nfrom pytest_intercode.cli import main\nmain([])\n"
        "print({'docker', 'pooch', 'requests', 'yaml', 'pydantic', 'pytest'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


# -- the table of the package


@pytest.fixture
def real_table(monkeypatch: pytest.MonkeyPatch, table: None) -> None:
    monkeypatch.undo()


@pytest.mark.usefixtures("real_table")
def test_the_table() -> None:
    files = files_of("")
    assert len({file.path for file in files}) == len(files) > 100
    for file in files:
        assert len(bytes.fromhex(file.digest)) == (20 if file.size is None else 32)
        assert (file.size == 0) == (file.digest == hashlib.sha256().hexdigest())
        assert file.mode in (0o644, 0o755)
        assert not file.target.is_absolute()
        assert ".." not in file.target.parts
    assert COMMIT in BASE_URL
    assert ALFA_COMMIT in ALFA_URL
    assert {Path("alfa/LICENSE.txt"), Path("alfa/nl2bash_fs_5.json")} <= {f.target for f in files}
    taken = {
        file.path
        for dataset in DATASETS.values()
        for file in files_of(*dataset.paths, *(path for path, _ in dataset.filesystems))
    }
    assert taken == {file.path for file in files}
    assert not [file.path for file in files if "solution" in file.path]


def test_what_can_be_fetched_can_be_run() -> None:
    assert set(DATASETS) <= set(dataset_names())


def test_the_command_that_gets_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch_command("spider", None) == "pytest-intercode fetch spider"
    assert fetch_command("spider", default_data()) == "pytest-intercode fetch spider"
    assert fetch_command("spider", Path("/a b")) == "pytest-intercode fetch spider --to '/a b'"


def test_errors_are_ours() -> None:
    with pytest.raises(FetchError), download.workplace(Path("/proc/nowhere")):
        pass
